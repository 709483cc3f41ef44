//! A training of some steps with a method, and what its metrics say.

use crate::args::{CompareArgs, Method};
use crate::data::{Corpus, Vocab};
use anyhow::{Context, Result, ensure};
use report::DeviceReport;
use report::multiprocessing::{self, Process};
use report::read_events;
use std::env::current_exe;
use std::path::PathBuf;
use std::process::{Command, id};
use tch_parallel::Devices;
use tempfile::TempDir;

/// Runs this program with everything but the method and the batch given.
pub struct Runs<'a> {
    args: &'a CompareArgs,
    devices: &'a Devices,
    corpus: Corpus,
    /// For what the processes read and write.
    directory: TempDir,
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

impl<'a> Runs<'a> {
    pub fn new(
        args: &'a CompareArgs,
        devices: &'a Devices,
        corpus: Corpus,
        vocab: &Vocab,
    ) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a directory for metrics")?;
        vocab.save(&directory.path().join(VOCAB))?;
        Ok(Self { args, devices, corpus, directory })
    }

    /// How many devices share a batch.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// # Errors
    /// If a process fails or takes too long; none is left then.
    pub fn run(&self, method: Method, batch_size: usize, steps: u64) -> Result<Measured> {
        eprintln!("{method}, batch {batch_size} …");
        let metrics = self.directory.path().join("metrics");
        let mut train = vec![
            format!("--method={method}"),
            format!("--devices={}", self.devices),
            format!("--batch-size={batch_size}"),
            format!("--steps={steps}"),
            // An epoch has a step at least.
            format!("--epochs={steps}"),
            format!("--seed={}", self.args.seed),
            format!("--measured-by={}", id()),
        ];
        train.extend(self.args.model.flags());
        let command = || -> Result<Command> {
            let mut command = Command::new(current_exe().context("cannot find this program")?);
            command.args(&train).arg("--metrics").arg(&metrics);
            command.arg("--vocab").arg(self.directory.path().join(VOCAB));
            command.arg("--corpus").arg(self.corpus_for(batch_size)?);
            Ok(command)
        };
        let processes = match method {
            Method::Ddp => {
                let ranks = (0..self.devices.len()).map(|_| command());
                Process::ranks(&method.to_string(), ranks.collect::<Result<_>>()?)?
            }
            _ => vec![Process::new(method.to_string(), command()?)],
        };
        let ranks = processes.len();
        multiprocessing::run(processes, self.args.time_limit(), |_, _| {})?;

        let mut measured = Measured { method, batch_size, devices: Vec::new(), step_seconds: 0.0 };
        for rank in 0..ranks {
            let path = metrics.join(format!("rank{rank}.jsonl"));
            measured.devices.extend(read_events::<DeviceReport>(&path, "device")?);
            for end in read_events::<End>(&path, "end")? {
                measured.step_seconds = measured.step_seconds.max(end.step_seconds_median);
            }
        }
        let (found, expected) = (measured.devices.len(), self.devices.len());
        ensure!(found == expected, "{method} reported on {found} devices instead of {expected}");
        Ok(measured)
    }

    /// A corpus that fills a batch: the text again and again, if it is short.
    fn corpus_for(&self, batch_size: usize) -> Result<PathBuf> {
        let pairs = &self.corpus.pairs;
        let count = pairs.len().max(batch_size);
        let path = self.directory.path().join("corpus.txt");
        Corpus { pairs: pairs.iter().cycle().take(count).cloned().collect() }.save(&path)?;
        Ok(path)
    }
}

const VOCAB: &str = "vocab.txt";

#[derive(serde::Deserialize)]
struct End {
    step_seconds_median: f64,
}
