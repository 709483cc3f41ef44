//! A training of some steps with a method, and what its metrics say.

use super::args::CompareArgs;
use crate::args::Method;
use crate::data::{Corpus, Vocab};
use anyhow::Result;
use report::DeviceReport;
use report::comparison::{self, Comparison, Training, Workers};
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs this program with everything but the method and the batch given.
pub struct Runs<'a> {
    args: &'a CompareArgs,
    comparison: &'a Comparison,
    corpus: Corpus,
}

/// What a run has shown.
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

impl Measured {
    /// The bytes that the fullest device needs.
    pub fn peak(&self) -> usize {
        self.devices.iter().map(|device| device.peak).max().unwrap_or(0)
    }
}

impl comparison::Measured for Measured {
    fn name(&self) -> String {
        self.method.to_string()
    }

    fn devices(&self) -> &[DeviceReport] {
        &self.devices
    }
}

impl<'a> Runs<'a> {
    pub fn new(
        args: &'a CompareArgs,
        comparison: &'a Comparison,
        corpus: Corpus,
        vocab: &Vocab,
    ) -> Result<Self> {
        vocab.save(&comparison.directory().join(VOCAB))?;
        Ok(Self { args, comparison, corpus })
    }

    /// How many devices share a batch.
    pub fn devices(&self) -> usize {
        self.args.devices.len()
    }

    /// # Errors
    /// If a process fails or takes too long; none is left then.
    pub fn run(&self, method: Method, batch_size: usize, steps: u64) -> Result<Measured> {
        eprintln!("{method}, batch {batch_size} …");
        let mut flags: Vec<OsString> = vec![
            "--vocab".into(),
            self.comparison.directory().join(VOCAB).into(),
            "--corpus".into(),
            self.corpus_for(batch_size)?.into(),
        ];
        let numbers = [
            format!("--method={method}"),
            format!("--devices={}", self.args.devices),
            format!("--batch-size={batch_size}"),
            format!("--steps={steps}"),
            // An epoch has a step at least.
            format!("--epochs={steps}"),
            format!("--seed={}", self.args.seed),
        ];
        flags.extend(numbers.into_iter().chain(self.args.model.flags()).map(OsString::from));
        let workers = match method {
            Method::Ddp => Workers::Ranks(self.devices()),
            _ => Workers::Process,
        };
        let name = method.to_string();
        let training = Training { name, flags, workers, single_threaded: false };
        let metrics = self.comparison.run(&training, |_line| {})?;
        let ends = metrics.events::<End>("end")?;
        let step_seconds = ends.iter().map(|end| end.step_seconds_median).fold(0.0, f64::max);
        let devices = metrics.devices(self.devices())?;
        Ok(Measured { method, batch_size, devices, step_seconds })
    }

    /// A corpus that fills a batch: the text again and again, if it is short.
    fn corpus_for(&self, batch_size: usize) -> Result<PathBuf> {
        let pairs = &self.corpus.pairs;
        let count = pairs.len().max(batch_size);
        let path = self.comparison.directory().join("corpus.txt");
        Corpus { pairs: pairs.iter().cycle().take(count).cloned().collect() }.save(&path)?;
        Ok(path)
    }
}

const VOCAB: &str = "vocab.txt";

#[derive(serde::Deserialize)]
struct End {
    step_seconds_median: f64,
}
