//! The forward pass: the batch is divided, the model copied to every device, and the outputs are put together.

use super::toy::*;
use crate::models::EmbeddingLinear;
use anyhow::Result;
use tch::{Kind, Reduction, Tensor, nn::Module, nn::Path, nn::VarStore, no_grad};
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, Step, gather, scatter};
use tch_parallel::{Devices, LogicalDevice, optim::Optimizer, optim::Sgd, optim::SgdOptions};

/// The number of rows of each chunk (S0.2, S0.13).
pub fn chunk_sizes(rows: i64, devices: usize) -> Result<Vec<i64>> {
    let chunks = scatter(&count(rows), &Devices::cpu(devices)?, 0)?;
    Ok(chunks.iter().map(|chunk| chunk.size()[0]).collect())
}

/// These numbers times ten, each multiplied by the replica that gets it (S0.8).
pub fn tens(numbers: &[i64], devices: usize) -> Result<Vec<i64>> {
    let (_vs, model) = wrapped(devices, |_| 10)?;
    Ok(model.forward(Tensor::from_slice(numbers), |factor, chunk| chunk * *factor)?.try_into()?)
}

/// The first row of each chunk of inputs and of targets, both numbered from 0 (S0.20).
pub fn pairs(rows: i64, devices: usize) -> Result<Vec<(i64, i64)>> {
    let chunks = scatter(&(count(rows), count(rows)), &Devices::cpu(devices)?, 0)?;
    Ok(chunks.iter().map(|(x, y)| (x.int64_value(&[0]), y.int64_value(&[0]))).collect())
}

/// Whether the first chunk begins at the batch's address in memory, and the batch's bytes copied to each device (S2.9).
pub fn first_chunk() -> Result<(bool, Vec<usize>)> {
    let (inputs, _) = batch(8);
    let chunks = scatter(&inputs, &Devices::cpu(2)?, 0)?;
    Ok((chunks[0].data_ptr() == inputs.data_ptr(), copied(&step(8, 2, 0)?.events, Step::Scatter)))
}

/// The device without a replica that gathers the rows of two others, and these rows (S0.30).
pub fn gathered_outside() -> Result<(String, Vec<i64>)> {
    let [first, second, outside] = [0, 1, 2].map(LogicalDevice::Cpu);
    let rows = |rows: [i64; 2]| Tensor::from_slice(&rows);
    let parts = [first.copy_of(&rows([1, 2]))?, second.copy_of(&rows([3, 4]))?];
    let gathered = gather(&parts, outside, 0)?;
    Ok((LogicalDevice::of(&gathered).to_string(), gathered.try_into()?))
}

/// The first thread's model: parameters, shape of the output, and its difference from the unwrapped one's (S0.1, S0.3).
pub fn threads_model(devices: usize) -> Result<(usize, Vec<i64>, f64)> {
    let tokens = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6]);
    let (vs, model) = wrapped(devices, EmbeddingLinear::new)?;
    let (_, alone) = unwrapped(EmbeddingLinear::new);
    let output = no_grad(|| model.f_forward_t(&tokens, true))?;
    Ok((parameters(&vs), output.size(), difference(&output, &no_grad(|| alone.forward(&tokens)))))
}

/// What each device holds: its name, the sum of its weights, and its rows of the batch (S0.9).
pub fn held(devices: usize) -> Result<Vec<(String, f64, Vec<i64>)>> {
    let (_vs, model) = split(devices, EmbeddingLinear::new)?;
    let outputs = model.forward(count(8), |module, rows| (module.embedding.ws.detach(), rows))?;
    let held = outputs.parts().iter().map(|(weights, rows)| {
        let device = LogicalDevice::of(weights).to_string();
        Ok((device, number(&weights.sum(Kind::Double)), Vec::try_from(rows)?))
    });
    held.collect()
}

/// Whether each of two replicas uses the original's storage (S2.10).
pub fn are_originals() -> Result<Vec<bool>> {
    let (vs, model) = split(2, EmbeddingLinear::new)?;
    let tables = model.forward(count(2), |module, _| module.embedding.ws.shallow_clone())?;
    let original = vs.variables()["embedding.weight"].data_ptr();
    Ok(tables.parts().iter().map(|table| table.data_ptr() == original).collect())
}

/// For each of several forward passes, the bytes of weights that it copies to each of two devices (S2.10, S0.6, S2.2).
pub fn replicated(passes: usize) -> Result<Vec<Vec<usize>>> {
    let (vs, model) = wrapped(2, EmbeddingLinear::new)?;
    let pass = || Ok(model.f_forward_t(&count(2), true)?.mean(Kind::Float));
    (0..passes).map(|_| Ok(copied(&train(&vs, &model, pass)?.events, Step::Replicate))).collect()
}

/// How far the optimizer moves the original and a replica, and their difference after the next forward pass (S2.8).
pub fn update() -> Result<(f64, f64, f64)> {
    let (vs, model) = split(2, EmbeddingLinear::new)?;
    let forward = || {
        model.forward(Tensor::from_slice(&[1i64, 2]), |module, tokens| {
            (module.forward(&tokens), module.embedding.ws.detach())
        })
    };
    let outputs = forward()?;
    let [original, replica] = [0, 1].map(|index| outputs.parts()[index].1.shallow_clone());
    let before = [&original, &replica].map(Tensor::copy);
    let criterion = DataParallelCriterion::new(|(output, _): &(Tensor, _), target: &Tensor| {
        output.mse_loss(target, Reduction::Mean)
    });
    criterion.forward(outputs, waves(&[2, EmbeddingLinear::WIDTH]))?.backward()?;
    Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?.step()?;
    let original_moved = number(&(&original - &before[0]).norm());
    let replica_moved = number(&(&replica - &before[1]).norm());
    let _ = forward()?;
    Ok((original_moved, replica_moved, difference(&replica, &original)))
}

/// The error for a model that is not on the first device (S2.1).
pub fn model_elsewhere() -> Result<String> {
    let devices = Devices::cpu(2)?;
    let second = devices.get(1)?;
    let build = |path: &Path<'_>| {
        let _on = second.guard();
        EmbeddingLinear::new(path)
    };
    let built = DataParallel::new(build, &VarStore::new(second.into()), &devices);
    Ok(built.map_or_else(|error| error.to_string(), |_| "accepted".into()))
}

/// The shape of the output for a batch on the second device (S2.1).
pub fn batch_elsewhere() -> Result<Vec<i64>> {
    let (_vs, model) = wrapped(2, EmbeddingLinear::new)?;
    Ok(model.f_forward_t(&LogicalDevice::Cpu(1).copy_of(&count(4))?, true)?.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toy_gives_the_unwrapped_models_output_on_any_devices() {
        for devices in 1..=4 {
            let (parameters, shape, difference) = threads_model(devices).unwrap();
            assert_eq!((parameters, shape), (10_110, vec![6, 10]));
            assert!(difference <= ROUNDING, "{devices} devices: {difference}");
        }
    }

    #[test]
    fn every_device_holds_the_same_weights_and_rows_of_its_own() {
        let held = held(4).unwrap();
        assert_eq!(held.len(), 4);
        for (index, (device, weights, rows)) in held.iter().enumerate() {
            assert_eq!(*device, format!("cpu:{index}"));
            assert_eq!(*weights, held[0].1);
            assert_eq!(*rows, [2 * index as i64, 2 * index as i64 + 1]);
        }
    }

    #[test]
    fn only_the_original_is_updated() {
        let (original, replica, after) = update().unwrap();
        assert!(original > 0.0);
        assert_eq!((replica, after), (0.0, 0.0));
    }
}
