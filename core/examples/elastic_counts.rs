//! A training whose ranks come and go, and whose model counts: each sample has a weight of its own, to
//! which each step adds 1. At the end it is known whether a sample was lost or used twice.
//!
//! ```text
//! cargo xtask launch -n 4 --max-restarts 9 -- target/release/examples/elastic_counts 100
//! ```
//!
//! Kill a rank meanwhile: `pkill -KILL --newest elastic_counts`. With a directory as the second argument, each
//! process writes the time of each of its steps to a file there. `touch enough` ends the training.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::io::{Write, sink};
use std::{env, fs::File, path::Path, process, time::UNIX_EPOCH};
use tch::{Device, Kind, Tensor, nn};
use tch_parallel::distributed::{
    DeviceChoice, DistributedDataParallel, ProcessGroup, ProcessGroupOptions, record,
};
use tch_parallel::{checkpoint::Training, data::DistributedSampler, data::Sampler};
use tch_parallel::{elastic, elastic::State, optim::Sgd, optim::SgdOptions};

const SAMPLES: usize = 1200;

/// Of all ranks together. Up to six can share it.
const BATCH: usize = 60;

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Progress {
    epoch: u64,
    samples: usize,
}

fn main() -> Result<()> {
    record(count).map_err(anyhow::Error::from_boxed)
}

fn count() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let epochs: u64 = arguments.next().as_deref().unwrap_or("10").parse()?;
    let mut times: Box<dyn Write> = match arguments.next() {
        Some(directory) => Box::new(File::create(format!("{directory}/{}", process::id()))?),
        None => Box::new(sink()),
    };

    let mut vs = nn::VarStore::new(Device::Cpu);
    let counts = vs.root().zeros("counts", &[SAMPLES as i64]);
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
    // ANCHOR: state
    let training = Training {
        architecture: "counts",
        vs: &mut vs,
        optimizer: &mut optimizer,
        scheduler: None,
        scaler: None,
    };
    let mut state = State::new(training, Progress::default());
    // ANCHOR_END: state

    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    // ANCHOR: run
    let epochs = elastic::run(options, &mut state, |group, state| {
        let (rank, ranks) = (group.rank(), group.world_size());
        let model = DistributedDataParallel::new(&counts, state.training.vs, group)?;
        let sampler = DistributedSampler::new(group, 0);
        let Progress { epoch, samples } = state.progress;
        println!(
            "process {} is rank {rank} of {ranks}, from sample {samples} of epoch {epoch} on",
            process::id()
        );
        while state.progress.epoch < epochs && !is_enough(group)? {
            let Progress { epoch, samples } = state.progress;
            for batch in sampler.indices_after(SAMPLES, epoch, samples)?.chunks(BATCH / ranks) {
                let batch: Vec<_> = batch.iter().map(|&sample| sample as i64).collect();
                let loss =
                    model.forward(|counts| counts.index_select(0, &Tensor::from_slice(&batch)))?;
                let loss = loss.sum(Kind::Float) * -(ranks as f64);
                state.training.optimizer.zero_grad()?;
                model.backward(&loss)?;
                state.training.optimizer.step()?;
                state.progress.samples += BATCH;
                writeln!(times, "{} {ranks}", UNIX_EPOCH.elapsed()?.as_micros())?;
                state.commit()?;
            }
            state.progress = Progress { epoch: epoch + 1, samples: 0 };
        }
        anyhow::Ok(state.progress.epoch)
    })?;
    // ANCHOR_END: run

    let [fewest, most] = [counts.min(), counts.max()].map(|count| count.double_value(&[]));
    let found = format!("a sample counts {fewest} to {most} times in {epochs} epochs");
    ensure!(fewest == most && most == epochs as f64, found);
    println!("process {}: every sample came {most} times", process::id());
    Ok(())
}

/// Whether rank 0 finds the file.
fn is_enough(group: &ProcessGroup) -> Result<bool> {
    let mut found = Path::new("enough").exists();
    group.broadcast_object(&mut found, 0)?;
    Ok(found)
}
