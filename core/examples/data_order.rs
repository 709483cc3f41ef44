//! Which samples come in which order, and what a training with dropout makes of them; equal to
//! PyTorch's. Each argument describes an object by PyTorch's name and keyword arguments.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example data_order -- '{"RandomSampler": {"len": 5, "seed": 1}}'
//! ```

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::env;
use tch::{Device, Kind, Tensor, nn::ModuleT, nn::VarStore};
use tch_parallel::Result as EngineResult;
use tch_parallel::data::{
    BatchSampler, ConcatDataset, DataLoader, DataLoaderOptions, Dataset, DistributedSamplerWrapper,
    IterableDataset, RandomSampler, Sampler, Samples, SequentialSampler, Shard,
    SubsetRandomSampler, TensorDataset, WeightedRandomSampler, WorkerInfo, random_split,
};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

const EPOCHS: u64 = 3;

fn main() -> Result<()> {
    for description in env::args().skip(1) {
        println!("{}", run(&serde_json::from_str(&description)?)?);
    }
    Ok(())
}

fn parse(description: &Value) -> Result<(&str, &Value)> {
    let object = description.as_object().context("a description is {NAME: ARGUMENTS}")?;
    let (name, arguments) = object.iter().next().context("it has a name")?;
    Ok((name, arguments))
}

fn get<T: DeserializeOwned>(arguments: &Value, name: &str) -> Result<T> {
    serde_json::from_value(arguments[name].clone()).with_context(|| format!("no {name}"))
}

fn or_default<T: DeserializeOwned + Default>(arguments: &Value, name: &str) -> Result<T> {
    if arguments[name].is_null() { Ok(T::default()) } else { get(arguments, name) }
}

fn run(description: &Value) -> Result<Value> {
    let (name, arguments) = parse(description)?;
    if let Some(seed) = arguments["manual_seed"].as_i64() {
        tch::manual_seed(seed);
    }
    Ok(match name {
        "random_split" => {
            let data = numbers(get(arguments, "len")?)?;
            let seed: Option<u64> = or_default(arguments, "seed")?;
            let parts = if arguments["lengths"][0].is_u64() {
                random_split(data, get::<[usize; 3]>(arguments, "lengths")?, seed)?
            } else {
                random_split(data, get::<[f64; 3]>(arguments, "lengths")?, seed)?
            };
            json!(parts.map(|part| part.indices().to_vec()))
        }
        "ConcatDataset" => {
            let ends: Vec<i64> = get(arguments, "cumulative_sizes")?;
            let starts = [0].into_iter().chain(ends.iter().copied());
            let parts = starts.zip(&ends).map(|(start, &end)| {
                TensorDataset::new(Tensor::arange_start(start, end, (Kind::Int64, Device::Cpu)))
            });
            let data = ConcatDataset::new(parts.collect::<EngineResult<Vec<_>>>()?)?;
            sampled(data, arguments)?
        }
        "BatchSampler" => sampled(numbers(get(arguments, "len")?)?, arguments)?,
        "batch_sampler" => {
            let own = DistributedSamplerWrapper::new(Growing, shard(arguments)?);
            let data = numbers(get(arguments, "len")?)?;
            let loader = DataLoader::with_batch_sampler(data, own, options(arguments)?)?;
            batches(|epoch| loader.epoch(epoch))?
        }
        "IterableDataset" => {
            let data = Count(get(arguments, "len")?);
            let loader = DataLoader::iterable(data, shard(arguments)?, options(arguments)?)?;
            batches(|epoch| loader.epoch(epoch))?
        }
        "training" => json!(losses(arguments)?),
        _ => {
            let (sampler, len) = (sampler(description)?, or_default(arguments, "len")?);
            json!((0..EPOCHS).map(|e| sampler.indices(len, e)).collect::<EngineResult<Vec<_>>>()?)
        }
    })
}

fn sampler(description: &Value) -> Result<Box<dyn Sampler>> {
    let (name, arguments) = parse(description)?;
    let seed = or_default(arguments, "seed")?;
    Ok(match name {
        "SequentialSampler" => Box::new(SequentialSampler),
        "RandomSampler" => Box::new(RandomSampler {
            seed,
            replacement: or_default(arguments, "replacement")?,
            num_samples: or_default(arguments, "num_samples")?,
        }),
        "SubsetRandomSampler" => {
            Box::new(SubsetRandomSampler::new(get::<Vec<_>>(arguments, "indices")?, seed))
        }
        "WeightedRandomSampler" => Box::new(WeightedRandomSampler {
            weights: get(arguments, "weights")?,
            num_samples: get(arguments, "num_samples")?,
            replacement: get(arguments, "replacement")?,
            seed,
        }),
        "DistributedSamplerWrapper" => Box::new(DistributedSamplerWrapper {
            drop_last: or_default(arguments, "drop_last")?,
            ..DistributedSamplerWrapper::new(sampler(&arguments["sampler"])?, shard(arguments)?)
        }),
        other => bail!("there is no sampler {other}"),
    })
}

fn shard(arguments: &Value) -> Result<Shard> {
    Ok(Shard::new(get(arguments, "rank")?, get(arguments, "num_replicas")?)?)
}

fn options(arguments: &Value) -> Result<DataLoaderOptions> {
    let default = DataLoaderOptions::default();
    Ok(DataLoaderOptions {
        batch_size: get(arguments, "batch_size").unwrap_or(default.batch_size),
        num_workers: or_default(arguments, "num_workers")?,
        drop_last: or_default(arguments, "drop_last")?,
        draw_base_seed: or_default(arguments, "draw_base_seed")?,
        ..default
    })
}

/// Samples that are their own numbers.
fn numbers(len: i64) -> Result<TensorDataset<Tensor>> {
    Ok(TensorDataset::new(Tensor::arange(len, (Kind::Int64, Device::Cpu)))?)
}

/// What a loader with a sampler gives in all epochs.
fn sampled(data: impl Dataset<Batch = Tensor> + 'static, arguments: &Value) -> Result<Value> {
    let sampler = sampler(&arguments["sampler"])?;
    let loader = DataLoader::with_options(data, sampler, options(arguments)?)?;
    batches(|epoch| loader.epoch(epoch))
}

fn batches<E: Iterator<Item = EngineResult<Tensor>>>(
    epoch: impl Fn(u64) -> EngineResult<E>,
) -> Result<Value> {
    let batches = |number| -> Result<Vec<_>> {
        epoch(number)?.map(|batch| Ok(Vec::<i64>::try_from(&batch?)?)).collect()
    };
    Ok(json!((0..EPOCHS).map(batches).collect::<Result<Vec<_>>>()?))
}

/// Batches of 1, 2, 3 … samples, and then what is left.
struct Growing;

impl BatchSampler for Growing {
    fn batches(&self, len: usize, _epoch: u64) -> EngineResult<Vec<Vec<usize>>> {
        let begin = |batch: usize| (batch * (batch + 1) / 2).min(len);
        let batches = 0..self.num_batches(len);
        Ok(batches.map(|batch| (begin(batch)..begin(batch + 1)).collect()).collect())
    }

    fn num_batches(&self, len: usize) -> usize {
        (0..).take_while(|batch| batch * (batch + 1) / 2 < len).count()
    }
}

// ANCHOR: stream
/// The numbers below this one; each epoch adds one to all of them.
struct Count(i64);

impl IterableDataset for Count {
    type Sample = i64;
    type Batch = Tensor;

    fn samples(&self, worker: WorkerInfo, epoch: u64) -> EngineResult<Samples<i64>> {
        Ok(worker.share_out((0..self.0).map(move |number| Ok(number + epoch as i64))))
    }

    fn collate(&self, samples: Vec<i64>) -> EngineResult<Tensor> {
        Ok(Tensor::from_slice(&samples))
    }
}
// ANCHOR_END: stream

/// The losses of a training with dropout. With `resume`, each epoch is broken off after that many
/// batches and goes on in a second loop.
fn losses(arguments: &Value) -> Result<Vec<f64>> {
    tch::manual_seed(get(arguments, "seed")?);
    let vs = VarStore::new(Device::Cpu);
    let model = tch::nn::seq_t()
        .add(linear(vs.root() / "0", 2, 16, LinearOptions::default()))
        .add_fn_t(|x, train| x.dropout(0.5, train))
        .add(linear(vs.root() / "2", 16, 1, LinearOptions::default()));
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() })?;
    let inputs = Tensor::arange(48, (Kind::Float, Device::Cpu)).view([24, 2]) / 48.0;
    let sampler = RandomSampler::new(7);
    let options = options(arguments)?;
    let batch_size = options.batch_size;
    let loader = DataLoader::with_options(TensorDataset::new(inputs)?, sampler, options)?;
    let resume = Some(or_default(arguments, "resume")?).filter(|&batches| batches > 0);
    let mut losses = Vec::new();
    for epoch in 0..EPOCHS {
        let begun = loader.epoch(epoch)?.take(resume.unwrap_or(usize::MAX));
        let mut train = |batch: EngineResult<Tensor>| -> Result<()> {
            let batch = batch?;
            let expected = batch.sum_dim_intlist(1, true, Kind::Float);
            let loss = (model.forward_t(&batch, true) - expected).square().mean(Kind::Float);
            optimizer.zero_grad()?;
            loss.backward();
            optimizer.step()?;
            losses.push(f64::try_from(&loss)?);
            Ok(())
        };
        begun.into_iter().try_for_each(&mut train)?;
        if let Some(step) = resume {
            loader.epoch_after(epoch, step * batch_size)?.try_for_each(&mut train)?;
        }
    }
    Ok(losses)
}
