//! What to learn from: a corpus and its vocabulary.

use crate::data::{Corpus, Vocab, VocabOptions};
use anyhow::Result;
use std::path::PathBuf;

/// Build the vocabulary of a corpus and save it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-custom-criterion vocab --corpus corpus.txt --output vocab.json
  dp-custom-criterion vocab --output vocab.json --size 4096   for this project's book")]
pub struct VocabArgs {
    /// Corpus: two sentences per line, separated by a tab [default: this project's book].
    #[arg(short, long, visible_alias = "corpus-path")]
    pub corpus: Option<PathBuf>,
    /// File to write the vocabulary to.
    #[arg(short, long, visible_alias = "output-path")]
    pub output: PathBuf,
    #[command(flatten)]
    pub options: VocabOptions,
    /// Encoding of the corpus, which must be UTF-8.
    #[arg(short, long, value_name = "NAME", default_value = "utf-8", value_parser = utf8)]
    pub encoding: String,
}

fn utf8(name: &str) -> Result<String, String> {
    let is_utf8 = ["utf-8", "utf8"].contains(&&*name.to_lowercase());
    let advice = format!("a corpus is in UTF-8; convert it with iconv -f {name} -t utf-8");
    is_utf8.then(|| name.to_owned()).ok_or(advice)
}

#[derive(Debug, clap::Args)]
pub struct TextArgs {
    /// Corpus: two sentences per line, separated by a tab [default: this project's book].
    #[arg(short, long, visible_alias = "train-dataset")]
    corpus: Option<PathBuf>,
    /// Vocabulary written by the subcommand vocab [default: that of the corpus].
    #[arg(short, long, visible_alias = "vocab-path")]
    vocab: Option<PathBuf>,
}

impl TextArgs {
    pub fn load(&self) -> Result<(Corpus, Vocab)> {
        let corpus = Corpus::load(self.corpus.as_deref())?;
        let built = || Ok(Vocab::build(&corpus, VocabOptions::default()));
        let vocab = self.vocab.as_deref().map_or_else(built, Vocab::load)?;
        Ok((corpus, vocab))
    }
}
