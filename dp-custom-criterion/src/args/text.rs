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
