//! The default corpus, made from this project's book: a text that is at hand wherever the program
//! is, and that a reader knows.

use super::Corpus;
use super::corpus::Pair;

const CHAPTERS: [&str; 4] = [
    include_str!("../../../book/src/preface.md"),
    include_str!("../../../book/src/launching.md"),
    include_str!("../../../book/src/sampler.md"),
    include_str!("../../../book/src/ddp-mnist.md"),
];

/// Each sentence of the book's text with the one after it. It changes with the book.
pub fn corpus() -> Corpus {
    Corpus { pairs: CHAPTERS.iter().flat_map(|chapter| pairs(chapter)).collect() }
}

fn pairs(markdown: &str) -> Vec<Pair> {
    let sentences: Vec<Vec<String>> =
        paragraphs(markdown).iter().flat_map(|paragraph| sentences(paragraph)).collect();
    sentences.windows(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect()
}

/// The running text: no code, no headings, no tables.
fn paragraphs(markdown: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    let mut in_code = false;
    for line in markdown.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        let item = line.strip_prefix("- ").or_else(|| numbered(line));
        let is_text = !in_code && !is_fence && !line.starts_with(['#', '|', '<', '{']);
        if !is_text || line.is_empty() || item.is_some() {
            paragraphs.push(String::new());
        }
        if is_text && let Some(paragraph) = paragraphs.last_mut() {
            paragraph.push_str(item.unwrap_or(line));
            paragraph.push(' ');
        }
    }
    paragraphs
}

/// What stands behind the number of a list's item.
fn numbered(line: &str) -> Option<&str> {
    line.trim_start_matches(|c: char| c.is_ascii_digit())
        .strip_prefix(". ")
        .filter(|_| line.starts_with(|c: char| c.is_ascii_digit()))
}

/// Words in small letters, and each mark around them as a word of its own.
fn sentences(paragraph: &str) -> Vec<Vec<String>> {
    let text = without_markup(paragraph).to_lowercase();
    let words: Vec<_> = text.split_whitespace().flat_map(without_marks).collect();
    words
        .split_inclusive(|word| [".", "?", "!"].contains(&word.as_str()))
        .filter(|sentence| sentence.iter().any(|word| word.contains(char::is_alphanumeric)))
        .map(<[String]>::to_vec)
        .collect()
}

/// Of a link, its text; the marks of code and of emphasis go.
fn without_markup(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, behind)| behind);
    }
    plain.push_str(rest);
    plain.replace(['`', '*', '['], "")
}

/// `(one,` becomes `(`, `one`, `,`.
fn without_marks(word: &str) -> Vec<String> {
    let core = word.trim_matches(|c: char| !c.is_alphanumeric());
    let (before, after) = match word.find(core) {
        Some(start) => (&word[..start], &word[start + core.len()..]),
        None => (word, ""),
    };
    let marks = |marks: &str| marks.chars().map(String::from).collect::<Vec<_>>();
    let core = (!core.is_empty()).then(|| core.to_owned());
    marks(before).into_iter().chain(core).chain(marks(after)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_taken_from_the_running_text_only() {
        let markdown = "# Title. No sentence.\n\nTwo **ranks**, one\n[batch](a.md). Why?\n\
            ```rust\nlet x = 1. + 2.;\n```\n| a | table. |\n- `set_epoch` is \"gone\".\n1. End.\n";
        let joined = |sentence: &Vec<String>| sentence.join(" ");
        let found: Vec<_> = paragraphs(markdown)
            .iter()
            .flat_map(|text| sentences(text))
            .map(|s| joined(&s))
            .collect();
        assert_eq!(
            found,
            ["two ranks , one batch .", "why ?", "set_epoch is \" gone \" .", "end ."]
        );
        let pairs = pairs(markdown);
        assert_eq!(pairs.len(), 3);
        assert_eq!(pairs[0].each_ref().map(joined), ["two ranks , one batch .", "why ?"]);
    }

    #[test]
    fn the_book_gives_pairs_enough_for_several_batches() {
        let corpus = corpus();
        assert!(corpus.pairs.len() > 200, "{}", corpus.pairs.len());
        assert!(corpus.pairs.iter().flatten().all(|sentence| !sentence.is_empty()));
    }
}
