//! A training of some steps with a method, and what its metrics say.

use super::args::CompareArgs;
use crate::{args::method::Method, data::Corpus, data::Pair, model::ModelOptions};
use anyhow::Result;
use exhibit_kit::comparison::{Comparison, Training, Workers, equal_share};
use report::{DeviceReport, Summary, eprintln, flag_value};
use std::{ffi::OsString, fs, path::Path};
use tch_parallel::Error;

const VOCAB: &str = "vocab.json";

/// Runs this program with everything but the method and the batch given.
pub struct Runs<'a> {
    pub args: &'a CompareArgs,
    /// Tokens that the model knows.
    pub vocab_size: i64,
    comparison: Comparison,
    corpus: Corpus,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub method: Method,
    /// Pairs in a batch, of all devices together.
    pub batch_size: usize,
    /// In the order of the devices.
    pub devices: Vec<DeviceReport>,
    /// The median over the steps; of the ranks, the slowest.
    pub step_seconds: f64,
}

impl<'a> Runs<'a> {
    /// Refuses flags that no training could work with, and text that cannot be read.
    pub fn new(args: &'a CompareArgs) -> Result<Self> {
        let comparison = Comparison::new(args.timeout)?;
        equal_share(args.batch_size, &args.devices)?;
        let (corpus, vocab) = args.text.load()?;
        let vocab_size = args.model.vocab_size(vocab.len())?;
        vocab.save(&comparison.directory().join(VOCAB))?;
        Ok(Self { args, vocab_size, comparison, corpus })
    }

    pub fn run(&self, method: Method, batch_size: usize, steps: u64) -> Result<Measured> {
        let name = flag_value(&method);
        eprintln!("{name}, batch {batch_size} …");
        let directory = self.comparison.directory();
        let (vocab, corpus) = (directory.join(VOCAB), directory.join("corpus.txt"));
        // A corpus that does not fill a batch is repeated.
        let pairs = &self.corpus.pairs;
        save(pairs.iter().cycle().take(pairs.len().max(batch_size)), &corpus)?;
        let flags = self.flags(method, batch_size, steps);
        let mut flags: Vec<_> = flags.split(' ').map(OsString::from).collect();
        flags.extend(["--vocab".into(), vocab.into(), "--corpus".into(), corpus.into()]);
        let count = self.args.devices.len();
        let ranks = Workers::Ranks(count);
        let workers = if method.is_distributed() { ranks } else { Workers::Process };
        let training = Training { name, flags, workers, single_threaded: false };
        let metrics = self.comparison.run(&training, |_line| {})?;
        let ends = metrics.events::<Summary>("end")?;
        let step_seconds = ends.iter().filter_map(|it| it.step_seconds_median).fold(0.0, f64::max);
        Ok(Measured { method, batch_size, devices: metrics.devices(count)?, step_seconds })
    }

    fn flags(&self, method: Method, batch_size: usize, steps: u64) -> String {
        let devices = &self.args.devices;
        let ModelOptions { hidden, layers, attn_heads, seq_len, dropout, .. } = self.args.model;
        let recomputes = self.args.model.checkpoint_activations;
        let checkpoint = if recomputes { " --checkpoint-activations" } else { "" };
        let (method, vocab_size) = (flag_value(&method), self.vocab_size);
        // An epoch has at least one step, so as many epochs as steps are enough.
        format!(
            "--method={method} --devices={devices} --batch-size={batch_size} --steps={steps} \
             --epochs={steps} --hidden={hidden} --layers={layers} --attn-heads={attn_heads} \
             --seq-len={seq_len} --vocab-size={vocab_size} --dropout={dropout}{checkpoint}"
        )
    }
}

/// Writes what [`Corpus::load`] reads.
fn save<'a>(pairs: impl Iterator<Item = &'a Pair>, path: &Path) -> Result<()> {
    let lines: String = pairs.map(|[a, b]| format!("{}\t{}\n", a.join(" "), b.join(" "))).collect();
    Ok(fs::write(path, lines).map_err(Error::io("write", path))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    #[test]
    fn what_is_saved_is_loaded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"a b\tc\nd\te  f").unwrap();
        let corpus = Corpus::load(Some(file.path())).unwrap();
        save(corpus.pairs.iter(), file.path()).unwrap();
        assert_eq!(fs::read(file.path()).unwrap(), b"a b\tc\nd\te f\n");
        assert_eq!(Corpus::load(Some(file.path())).unwrap(), corpus);
    }

    #[test]
    fn a_training_gets_the_sizes_of_the_comparison() {
        let all = "--hidden=6 -l=1 -a=3 -s=9 --dropout=0.25 \
                   --checkpoint-activations --vocab-size=9999";
        let all: Vec<_> = all.split(' ').collect();
        for given in [&all[..], &all[..5]] {
            let line = ["program", "compare"].iter().chain(given);
            let Some(Command::Compare(args)) = Args::parse_from(line).command else { panic!() };
            let runs = Runs::new(&args).unwrap();
            let flags = runs.flags(Method::Ddp, 8, 3);
            let trained = Args::parse_from(["program"].into_iter().chain(flags.split(' '))).train;
            let vocab_size = Some(runs.vocab_size);
            assert_eq!(trained.model, ModelOptions { vocab_size, ..args.model });
            assert_eq!((trained.steps, trained.epochs), (Some(3), 3));
        }
    }
}
