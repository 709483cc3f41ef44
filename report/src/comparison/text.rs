//! What a comparison shows, in words.

use textwrap::fill;

/// In characters.
const WIDTH: usize = 100;

/// The texts, each filled to lines of up to 100 characters, with an empty line between two of them.
pub fn paragraphs(texts: &[String]) -> String {
    texts.iter().map(|text| fill(text, WIDTH) + "\n").collect::<Vec<_>>().join("\n")
}
