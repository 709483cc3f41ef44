//! Texts with holes for numbers, as minijinja templates, and their lines.

use crate::{size, thousands};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, UndefinedBehavior};
use textwrap::fill;

/// The width of a paragraph, in characters.
const WIDTH: usize = 100;

/// Fills in the holes of a text. It knows the filters `thousands` and [`size`]; an unknown name is an
/// error, and a line that holds only a tag prints nothing.
///
/// ```
/// use minijinja::context;
/// use report::text_environment;
///
/// let text = "{{ images|thousands }} images take {{ bytes|size }}.";
/// let filled = text_environment()?.render_str(text, context! { images => 4096, bytes => 3 << 20 })?;
/// assert_eq!(filled, "4,096 images take 3.00 MiB.");
/// # Ok::<(), minijinja::Error>(())
/// ```
///
/// # Errors
/// None with this syntax of tags, which minijinja checks here.
pub fn text_environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("thousands", thousands);
    environment.add_filter("size", size);
    Ok(environment)
}

/// Wraps each paragraph of the text to lines of up to 100 characters. An empty line ends a paragraph.
///
/// ```
/// assert_eq!(report::paragraphs("one\ntwo\n\nthree"), "one two\n\nthree\n");
/// ```
pub fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let wrapped = paragraphs.map(|paragraph| fill(&paragraph.replace('\n', " "), WIDTH) + "\n");
    wrapped.collect::<Vec<_>>().join("\n")
}
