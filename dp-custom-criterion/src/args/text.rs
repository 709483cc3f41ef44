//! What to learn from: a corpus and its vocabulary.

use crate::data::{Corpus, Vocab, VocabOptions};
use anyhow::Result;
use std::path::PathBuf;
use std::str::FromStr;

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
    /// Encoding of the corpus, which must be UTF-8.
    #[arg(short, long, value_name = "NAME", default_value = "utf-8")]
    pub encoding: Utf8,
}

/// The encoding of every corpus.
#[derive(Debug, Clone, Copy)]
pub struct Utf8;

impl FromStr for Utf8 {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.to_lowercase().as_str() {
            "utf-8" | "utf8" => Ok(Utf8),
            _ => Err(format!("a corpus is in UTF-8; convert it with iconv -f {name} -t utf-8")),
        }
    }
}

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
        self.corpus.as_deref().map_or_else(Corpus::book, Corpus::load)
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
