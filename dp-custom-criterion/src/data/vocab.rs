//! The words that have a token of their own.

use super::Corpus;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use tch_parallel::{Error, Result};

/// What the first tokens mean, whatever the corpus.
const SPECIALS: [&str; 5] = ["<pad>", "<unk>", "<eos>", "<sos>", "<mask>"];

/// Which words get a token of their own.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct VocabOptions {
    /// Keep the N most frequent words [default: all].
    #[arg(short, long, value_name = "N")]
    pub size: Option<usize>,
    /// Drop words seen fewer than N times.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub min_freq: usize,
}

impl Default for VocabOptions {
    fn default() -> Self {
        Self { size: None, min_freq: 1 }
    }
}

/// codertimo's `WordVocab`: words and their numbers.
///
/// He saves it with pickle, and loading such a file can run any code. Here it is a text file: a
/// line that says how many words there are, then a word a line, in the order of their tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Vocab {
    words: Vec<String>,
    tokens: HashMap<String, i64>,
}

impl Vocab {
    /// Fills short sequences up.
    pub const PAD: i64 = 0;
    /// Any word that has no token of its own.
    pub const UNK: i64 = 1;
    /// The end of a sentence; the paper's [SEP].
    pub const EOS: i64 = 2;
    /// The start of a pair; the paper's [CLS].
    pub const SOS: i64 = 3;
    /// A word that is to be guessed.
    pub const MASK: i64 = 4;

    /// Numbers the words of a corpus: the special ones, then by frequency, the most frequent first,
    /// equally frequent ones by the alphabet.
    pub fn build(corpus: &Corpus, options: VocabOptions) -> Self {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for word in corpus.pairs.iter().flatten().flatten() {
            *counts.entry(word).or_default() += 1;
        }
        let mut counts: Vec<_> = counts
            .into_iter()
            .filter(|(word, count)| *count >= options.min_freq && !SPECIALS.contains(word))
            .collect();
        counts.sort_unstable_by_key(|&(word, count)| (std::cmp::Reverse(count), word));
        let frequent = counts.into_iter().map(|(word, _)| word);
        let words = frequent.take(options.size.unwrap_or(usize::MAX));
        Self::from_words(SPECIALS.into_iter().chain(words).map(str::to_owned).collect())
    }

    /// How many tokens there are, the special ones included.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// The token of a word; [`UNK`](Self::UNK) if it has none.
    pub fn token(&self, word: &str) -> i64 {
        self.tokens.get(word).copied().unwrap_or(Self::UNK)
    }

    /// Writes the vocabulary.
    pub fn save(&self, path: &Path) -> Result<()> {
        let words = self.words.join("\n");
        report::save(path, &format!("{}\n{words}\n", header(self.words.len())))
    }

    /// Reads what [`save`](Self::save) has written.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read, [`Error::Format`] for one that is cut off, that
    /// was changed so that words are missing or come twice, or that is no vocabulary at all.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        let refuse = |found: String, expected: &str| {
            Err(Error::Format { path: PathBuf::from(path), found, expected: expected.into() })
        };
        let lines: Vec<_> = text.split_terminator('\n').collect();
        let Some((first, words)) = lines.split_first() else {
            return refuse("the file is empty".into(), "a vocabulary");
        };
        let Some(count) = count(first) else {
            return refuse(format!("it begins with {first:?}"), "a vocabulary of this program");
        };
        if words.len() != count || !text.ends_with('\n') {
            // The last line counts only if it is whole.
            let whole = text.matches('\n').count() - 1;
            return refuse(
                format!("it holds {whole} of {count} words"),
                "a file that was written to its end; make it anew with the subcommand vocab",
            );
        }
        if words.iter().zip(SPECIALS).any(|(word, special)| *word != special)
            || count < SPECIALS.len()
        {
            return refuse("it does not begin with them".into(), &SPECIALS.join(", "));
        }
        if let Some(position) = words.iter().position(|word| word.split_whitespace().count() != 1) {
            return refuse(
                format!("line {} is {:?}", position + 2, words[position]),
                "one word a line",
            );
        }
        let vocab = Self::from_words(words.iter().map(|&word| word.to_owned()).collect());
        let twice = |(token, word): &(usize, &String)| vocab.tokens[*word] != *token as i64;
        if let Some((token, word)) = vocab.words.iter().enumerate().find(twice) {
            // The map holds the last of equal words.
            let last = vocab.tokens[word];
            return refuse(
                format!("lines {} and {} are both {word:?}", token + 2, last + 2),
                "every word once",
            );
        }
        Ok(vocab)
    }

    fn from_words(words: Vec<String>) -> Self {
        let tokens = words.iter().cloned().zip(0..).collect();
        Self { words, tokens }
    }
}

fn header(count: usize) -> String {
    format!("vocabulary: {count} words")
}

fn count(line: &str) -> Option<usize> {
    line.strip_prefix("vocabulary: ")?.strip_suffix(" words")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(lines: &[[&str; 2]]) -> Corpus {
        let words = |sentence: &str| sentence.split(' ').map(str::to_owned).collect();
        Corpus { pairs: lines.iter().map(|[one, two]| [words(one), words(two)]).collect() }
    }

    fn vocab(options: VocabOptions) -> Vocab {
        let corpus = corpus(&[["b a c", "c <mask> b"], ["c", "d"]]);
        Vocab::build(&corpus, options)
    }

    #[test]
    fn frequent_words_come_first_and_equally_frequent_ones_by_the_alphabet() {
        let vocab = vocab(VocabOptions::default());
        assert_eq!(vocab.words, ["<pad>", "<unk>", "<eos>", "<sos>", "<mask>", "c", "b", "a", "d"]);
        assert_eq!((vocab.token("c"), vocab.token("d"), vocab.len()), (5, 8, 9));
        assert_eq!(vocab.token("<mask>"), Vocab::MASK);
        assert_eq!(vocab.token("never seen"), Vocab::UNK);
    }

    #[test]
    fn rare_words_can_be_left_out() {
        let at_least_2 = vocab(VocabOptions { min_freq: 2, ..Default::default() });
        assert_eq!(at_least_2.words[5..], ["c", "b"]);
        let largest = vocab(VocabOptions { size: Some(1), ..Default::default() });
        assert_eq!(largest.words[5..], ["c"]);
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vocab.txt");
        let vocab = vocab(VocabOptions::default());
        vocab.save(&path).unwrap();
        assert_eq!(Vocab::load(&path).unwrap(), vocab);
        let files = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 1, "nothing but the vocabulary is left");
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused_at_every_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vocab.txt");
        vocab(VocabOptions::default()).save(&path).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = Vocab::load(&path).unwrap_err().to_string();
            assert!(error.contains("vocab.txt: "), "{length}: {error}");
        }
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let error = Vocab::load(&path).unwrap_err().to_string();
        assert!(error.contains("it holds 8 of 9 words; expected a file"), "{error}");
    }

    #[test]
    fn a_file_with_wrong_words_is_refused() {
        let specials = SPECIALS.join("\n");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vocab.txt");
        for (content, expected) in [
            ("\u{80}pickle\n".into(), "it begins with \"\\u{80}pickle\"; expected a vocabulary"),
            (
                format!("vocabulary: 8 words\n{specials}\na\nb\na\n"),
                "lines 7 and 9 are both \"a\"; expected every word once",
            ),
            (
                format!("vocabulary: 6 words\n{specials}\nb a\n"),
                "line 7 is \"b a\"; expected one word a line",
            ),
            (format!("vocabulary: 6 words\n{specials}\n\n"), "line 7 is \"\""),
            (format!("vocabulary: 6 words\n{specials}\na\nb\n"), "it holds 7 of 6 words"),
            ("vocabulary: 1 words\n<pad>\n".into(), "expected <pad>, <unk>, <eos>, <sos>, <mask>"),
            (
                format!("vocabulary: 6 words\na\n{specials}\n"),
                "expected <pad>, <unk>, <eos>, <sos>, <mask>",
            ),
        ] {
            fs::write(&path, content).unwrap();
            let error = Vocab::load(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = vocab(VocabOptions::default())
            .save(&directory.path().join("missing/vocab.txt"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("cannot write ") && error.contains("missing"), "{error}");
    }
}
