//! The words with a token of their own.

use super::Corpus;
use anyhow::{Result, ensure};
use std::{collections::HashMap, fs, path::Path};
use tch_parallel::Error;

/// What the first tokens mean, whatever the corpus.
const SPECIALS: [&str; 5] = ["<pad>", "<unk>", "<eos>", "<sos>", "<mask>"];

const WRITTEN: &str = "what the subcommand vocab writes: a JSON list of words, each once, the first \
                       <pad>, <unk>, <eos>, <sos>, <mask>";

/// Which words get a token of their own.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct VocabOptions {
    /// Keep the N most frequent words [default: all].
    #[arg(short, long, value_name = "N", visible_alias = "vocab-size")]
    pub size: Option<usize>,
    /// Drop words seen fewer than N times.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub min_freq: usize,
}

/// codertimo's `WordVocab`: words and their numbers.
///
/// He saves it with pickle, and loading a pickle can run arbitrary code. Here it is a list in JSON, in
/// the order of the tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Vocab {
    words: Vec<String>,
    tokens: HashMap<String, i64>,
}

impl Vocab {
    /// Pads short sequences.
    pub const PAD: i64 = 0;
    /// Any word without a token of its own.
    pub const UNK: i64 = 1;
    /// The end of a sentence; the paper's [SEP].
    pub const EOS: i64 = 2;
    /// The start of a pair; the paper's [CLS].
    pub const SOS: i64 = 3;
    /// A word to guess.
    pub const MASK: i64 = 4;

    /// Numbers the words of a corpus: first the special ones, then the others from the most frequent
    /// to the rarest, equally frequent ones in alphabetical order.
    pub fn build(corpus: &Corpus, options: VocabOptions) -> Self {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for word in corpus.pairs.iter().flatten().flatten() {
            *counts.entry(word).or_default() += 1;
        }
        counts.retain(|word, count| *count >= options.min_freq && !SPECIALS.contains(word));
        let mut words: Vec<_> = counts.keys().copied().collect();
        words.sort_unstable_by_key(|word| (std::cmp::Reverse(counts[word]), *word));
        words.truncate(options.size.unwrap_or(usize::MAX));
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

    pub fn save(&self, path: &Path) -> Result<()> {
        Ok(report::save(path, &(serde_json::to_string_pretty(&self.words)? + "\n"))?)
    }

    /// Reads what [`save`](Self::save) has written. Refuses a file that is truncated, that repeats a
    /// word, or that is no vocabulary at all.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
        let refuse = |found: &str| Error::format(path, found, WRITTEN);
        let words = serde_json::from_str(&text).map_err(|error| refuse(&error.to_string()))?;
        let vocab = Self::from_words(words);
        ensure!(vocab.words.starts_with(&SPECIALS.map(str::to_owned)), refuse("other first words"));
        let is_no_token = |(word, token): &(&String, i64)| {
            word.split_whitespace().count() != 1 || vocab.tokens[*word] != *token
        };
        if let Some((word, _)) = vocab.words.iter().zip(0..).find(is_no_token) {
            return Err(refuse(&format!("{word:?}, which is not one word, or there twice")).into());
        }
        Ok(vocab)
    }

    fn from_words(words: Vec<String>) -> Self {
        Self { tokens: words.iter().cloned().zip(0..).collect(), words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(options: VocabOptions) -> Vocab {
        Vocab::build(&Corpus::of(&[["b a c", "c <mask> b"], ["c", "d"]]), options)
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
    fn what_is_saved_is_loaded_and_refused_if_it_was_cut_off_at_any_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vocab.json");
        let vocab = vocab(VocabOptions::default());
        vocab.save(&path).unwrap();
        assert_eq!(Vocab::load(&path).unwrap(), vocab);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() - 1 {
            fs::write(&path, &whole[..length]).unwrap();
            let error = Vocab::load(&path).unwrap_err().to_string();
            assert!(error.contains("vocab.json: "), "{length}: {error}");
        }
    }

    #[test]
    fn a_file_with_wrong_words_is_refused() {
        let specials = SPECIALS.map(|word| format!("{word:?}")).join(", ");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vocab.json");
        for (content, expected) in [
            ("\u{80}pickle\n".into(), "expected value at line 1 column 1; expected what"),
            (
                format!("[{specials}, \"a\", \"b\", \"a\"]"),
                "\"a\", which is not one word, or there twice; expected",
            ),
            (format!("[{specials}, \"b a\"]"), "\"b a\", which is not one"),
            (format!("[{specials}, \"\"]"), "\"\", which is not one"),
            (format!("[{specials}, 7]"), "invalid type: integer `7`, expected a string"),
            ("[\"<pad>\"]".into(), "other first words"),
            (format!("[\"a\", {specials}]"), "the first <pad>, <unk>, <eos>, <sos>, <mask>"),
        ] {
            fs::write(&path, content).unwrap();
            let error = Vocab::load(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
