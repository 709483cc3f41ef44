//! What to learn from.

use crate::data::{Corpus, Vocab, VocabOptions, book_corpus};
use std::path::PathBuf;
use tch_parallel::Result;

#[derive(Debug, clap::Args)]
pub struct CorpusArgs {
    /// Corpus: two sentences per line, separated by a tab [default: this project's book].
    #[arg(short, long)]
    corpus: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct TextArgs {
    #[command(flatten)]
    corpus: CorpusArgs,
    /// Vocabulary written by the subcommand vocab [default: that of the corpus].
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

/// Build the vocabulary of a corpus and save it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-custom-criterion vocab --corpus corpus.txt --output vocab.txt
  dp-custom-criterion vocab --output vocab.txt --size 4096   for this project's book")]
pub struct VocabArgs {
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// File to write the vocabulary to.
    #[arg(short, long)]
    pub output: PathBuf,
    #[command(flatten)]
    pub options: VocabOptions,
}
