//! A network's initial weights, and what it makes of a batch in training and in evaluation; saves all of it, which
//! equals Python's to the last bit. On a GPU also the bytes that PyTorch has allocated there.
//!
//! ```text
//! cargo run -rq -p ddp-imagenet --example models -- resnet18 resnet18.safetensors
//! cargo run -rq -p ddp-imagenet --features cuda --example models -- resnet18 resnet18.safetensors cuda:0
//! ```

use anyhow::{Context, Result};
use ddp_imagenet::models::Arch;
use std::env;
use tch::nn::{ModuleT, VarStore};
use tch::{Device, Kind, Tensor};
use tch_parallel::memory::{max_memory_allocated, memory_allocated};
use tch_parallel::nn::{NormLayer, named_parameters};
use tch_parallel::{LogicalDevice, backends::cudnn};

const CLASSES: i64 = 10;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let arch: Arch =
        arguments.next().context("the first argument is missing: a network")?.parse()?;
    let file = arguments.next().context("the second argument is missing: a file to write")?;

    let home = arguments.next().as_deref().unwrap_or("cpu:0").parse::<LogicalDevice>()?.check()?;
    let device = Device::from(home);

    cudnn::set_deterministic(true);
    tch::manual_seed(0);
    let vs = VarStore::new(device);
    let model = arch.build(&vs.root(), CLASSES, &NormLayer::BatchNorm);
    let mut bytes = Vec::new();
    if device.is_cuda() {
        bytes.push(("memory_allocated", memory_allocated(home)?));
    }
    let mut saved = copies("initial", vs.variables());
    let buffers = || vs.variables().into_iter().filter(|(_, variable)| !variable.requires_grad());

    // Drawn after the weights: equal only if these have drawn as many numbers as Python's.
    let images = Tensor::randn([4, 3, 32, 32], (Kind::Float, device)).set_requires_grad(true);
    let targets = Tensor::arange(4, (Kind::Int64, device));
    for (mode, train) in [("train", true), ("eval", false)] {
        let logits = model.forward_t(&images, train);
        logits.cross_entropy_for_logits(&targets).backward();
        if device.is_cuda() && train {
            bytes.push(("max_memory_allocated", max_memory_allocated(home)?));
        }
        saved.push((format!("{mode}.logits"), logits.detach().to_device(Device::Cpu)));
        let mut inputs = named_parameters(&vs);
        inputs.push(("images".into(), images.shallow_clone()));
        for (name, tensor) in inputs {
            saved.push((format!("{mode}.{name}.grad"), copy(&tensor.grad())));
            let _ = tensor.grad().zero_();
        }
        saved.extend(copies(mode, buffers()));
    }

    named_parameters(&vs).iter().for_each(|(name, it)| println!("{name} {:?}", it.size()));
    saved.extend(bytes.into_iter().map(|(name, n)| (name.into(), Tensor::from(n as i64))));
    Tensor::write_safetensors(&saved, file)?;
    Ok(())
}

type Named = (String, Tensor);

/// As they are now.
fn copies(mode: &str, all: impl IntoIterator<Item = Named>) -> Vec<Named> {
    let named = |(name, tensor): Named| (format!("{mode}.{name}"), copy(&tensor.detach()));
    all.into_iter().map(named).collect()
}

/// On the CPU, where it can be saved.
fn copy(tensor: &Tensor) -> Tensor {
    tensor.to_device_(Device::Cpu, tensor.kind(), false, true)
}
