//! What to learn from.

use crate::data::{Corpus, Vocab, VocabOptions, book_corpus};
use std::path::PathBuf;
use tch_parallel::Result;

#[derive(Debug, clap::Args)]
pub struct CorpusArgs {
    /// A text: two sentences a line, split by a tab; by default this project's book.
    #[arg(short, long)]
    corpus: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct TextArgs {
    #[command(flatten)]
    corpus: CorpusArgs,
    /// A vocabulary made by the subcommand vocab; by default that of the corpus.
    #[arg(short, long)]
    vocab: Option<PathBuf>,
}

impl CorpusArgs {
    pub fn load(&self) -> Result<Corpus> {
        match &self.corpus {
            Some(path) => Corpus::load(path),
            None => Ok(book_corpus()),
        }
    }
}

impl TextArgs {
    pub fn load(&self) -> Result<(Corpus, Vocab)> {
        let corpus = self.corpus.load()?;
        let vocab = match &self.vocab {
            Some(path) => Vocab::load(path)?,
            None => Vocab::build(&corpus, VocabOptions::default()),
        };
        Ok((corpus, vocab))
    }
}

/// Number the words of a corpus, and keep that in a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-custom-criterion vocab --corpus corpus.txt --output vocab.json
  dp-custom-criterion vocab --output vocab.json --size 4096   of this project's book")]
pub struct VocabArgs {
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// Where to put the vocabulary.
    #[arg(short, long)]
    pub output: PathBuf,
    /// The most frequent words only, so many; by default all.
    #[arg(short, long)]
    pub size: Option<usize>,
    /// Only words that occur at least so often.
    #[arg(short, long, default_value_t = 1)]
    pub min_freq: usize,
}

impl VocabArgs {
    pub fn options(&self) -> VocabOptions {
        VocabOptions { size: self.size, min_freq: self.min_freq }
    }
}
