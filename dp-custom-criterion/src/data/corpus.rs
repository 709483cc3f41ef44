//! Pairs of sentences, from a file.

use anyhow::{Result, ensure};
use std::{fs, path::Path};
use tch_parallel::Error;

/// Two consecutive sentences, as words.
pub type Pair = [Vec<String>; 2];

#[derive(Debug, Clone, PartialEq)]
pub struct Corpus {
    /// In the order of the text; never empty, and neither is a sentence.
    pub pairs: Vec<Pair>,
}

impl Corpus {
    /// Reads codertimo's format: one pair per line, the sentences separated by a tab, the words by
    /// spaces. Without a path, the sentences of this project's book, a text that is at hand wherever
    /// the program is. Refuses an empty file, and names the first line that is not a pair.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let (text, path) = match path {
            Some(path) => (fs::read(path).map_err(Error::io("read", path))?, path),
            None => (include_bytes!("book.txt").to_vec(), Path::new("book.txt")),
        };
        let refuse = |found: &str| {
            Error::format(path, found, "two sentences per line, separated by one tab, in UTF-8")
        };
        ensure!(!text.is_empty(), refuse("the file is empty"));
        let lines = text.strip_suffix(b"\n").unwrap_or(&text).split(|&byte| byte == b'\n');
        let pairs = lines.zip(1..).map(|(line, number)| {
            pair(line).map_err(|found| refuse(&format!("line {number} {found}")))
        });
        Ok(Self { pairs: pairs.collect::<Result<_, _>>()? })
    }
}

/// The error says what is wrong with the line.
fn pair(line: &[u8]) -> Result<Pair, String> {
    let line = str::from_utf8(line).map_err(|error| format!("is not UTF-8 ({error})"))?;
    let words = |sentence: &str| sentence.split_whitespace().map(str::to_owned).collect();
    let sentences: Vec<Vec<String>> = line.split('\t').map(words).collect();
    let pair: Pair = sentences.try_into().map_err(|sentences: Vec<_>| {
        let beginning: String = line.chars().take(40).collect();
        format!("has {} tabs: {beginning:?}", sentences.len() - 1)
    })?;
    let has_words = pair.iter().all(|words| !words.is_empty());
    has_words.then_some(pair).ok_or_else(|| "has no words on one side of its tab".into())
}

#[cfg(test)]
impl Corpus {
    pub fn of(pairs: &[[&str; 2]]) -> Self {
        let words = |sentence: &str| sentence.split(' ').map(str::to_owned).collect();
        Self { pairs: pairs.iter().map(|pair| pair.map(words)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(content: &[u8]) -> Result<Corpus> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        Corpus::load(Some(file.path()))
    }

    #[test]
    fn a_line_is_a_pair_of_sentences() {
        let corpus = load(b"welcome to the\tjungle\r\ni can stay \t here  all night\n").unwrap();
        let expected = [["welcome to the", "jungle"], ["i can stay", "here all night"]];
        assert_eq!(corpus, Corpus::of(&expected));
    }

    #[test]
    fn a_line_that_is_no_pair_is_refused_by_its_number() {
        for (content, expected) in [
            (&b"a\tb\nno tab in here\nc\td\n"[..], "line 2 has 0 tabs: \"no tab in here\""),
            (b"a\tb\tc\n", "line 1 has 2 tabs: \"a\\tb\\tc\""),
            (b"a\tb\n\nc\td\n", "line 2 has 0 tabs: \"\""),
            (b"a\tb\nc\t \n", "line 2 has no words on one side of its tab"),
            (b"a\tb\n\xff\tc\n", "line 2 is not UTF-8"),
            (b"", "the file is empty"),
            (b"\n", "line 1 has 0 tabs: \"\""),
        ] {
            let error = load(content).unwrap_err().to_string();
            let end = "; expected two sentences per line, separated by one tab, in UTF-8";
            assert!(error.contains(expected) && error.ends_with(end), "{error}");
        }
    }

    #[test]
    fn the_book_gives_pairs_enough_for_several_batches() {
        let pairs = Corpus::load(None).unwrap().pairs;
        assert!(pairs.len() > 200, "{}", pairs.len());
    }
}
