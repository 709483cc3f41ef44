//! A training of some steps with a method, and what its metrics say.

use super::processes;
use crate::args::{CompareArgs, Method};
use crate::data::{Corpus, Vocab};
use crate::device_report::DeviceReport;
use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use std::env::current_exe;
use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};
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
        let ranks = if method == Method::Ddp { self.devices.len() } else { 1 };
        let commands = match method {
            Method::Ddp => {
                let commands = (0..ranks).map(|_| command()).collect::<Result<Vec<_>>>()?;
                as_ranks(commands)?
            }
            _ => {
                let mut command = command()?;
                command.stdin(Stdio::null());
                vec![(method.to_string(), command)]
            }
        };
        processes::run(commands, self.args.timeout())?;

        let mut measured = Measured { method, batch_size, devices: Vec::new(), step_seconds: 0.0 };
        for rank in 0..ranks {
            let path = metrics.join(format!("rank{rank}.jsonl"));
            measured.devices.extend(events::<DeviceReport>(&path, "device")?);
            for end in events::<End>(&path, "end")? {
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

/// The commands as ranks of one job, as a launcher starts them.
fn as_ranks(commands: Vec<Command>) -> Result<Vec<(String, Command)>> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
    let port = listener.local_addr()?.port();
    let mut listener = Some(OwnedFd::from(listener));
    let world_size = commands.len().to_string();
    let mut ranks = Vec::new();
    for (rank, mut command) in commands.into_iter().enumerate() {
        command
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", &world_size)
            .env("LOCAL_WORLD_SIZE", &world_size)
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        // Rank 0 finds the listening socket where its standard input would be: nobody else can
        // take the port meanwhile.
        match listener.take() {
            Some(listener) => command.env("TCH_PARALLEL_MASTER_LISTEN_FD", "0").stdin(listener),
            None => command.stdin(Stdio::null()),
        };
        ranks.push((format!("{}, rank {rank},", Method::Ddp), command));
    }
    Ok(ranks)
}

#[derive(serde::Deserialize)]
struct End {
    step_seconds_median: f64,
}

/// The events of one name in a file of metrics.
fn events<E: DeserializeOwned>(path: &Path, name: &str) -> Result<Vec<E>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut found = Vec::new();
    for line in text.lines() {
        let event: serde_json::Value = serde_json::from_str(line)?;
        if event["event"] == name {
            found.push(serde_json::from_value(event)?);
        }
    }
    Ok(found)
}
