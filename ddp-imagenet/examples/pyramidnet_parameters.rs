//! How large a PyramidNet is: the tutorial's, the one that it is taken for, and smaller ones.
//!
//! ```text
//! cargo run -rq -p ddp-imagenet --example pyramidnet_parameters
//! ```

use anyhow::{Result, bail};
use ddp_imagenet::models::Arch;
use report::{aligned, thousands};
use tch::{Device, Tensor, nn::VarStore};
use tch_parallel::nn::NormLayer;

fn main() -> Result<()> {
    // ANCHOR: count
    let mut rows = Vec::new();
    for name in ["pyramidnet", "pyramidnet110_a270", "pyramidnet110_a84", "pyramidnet110_a48"] {
        let arch: Arch = name.parse()?;
        let vs = VarStore::new(Device::Cpu);
        arch.build(&vs.root(), 10, &NormLayer::BatchNorm);
        let parameters: usize = vs.trainable_variables().iter().map(Tensor::numel).sum();
        // ANCHOR_END: count
        let Arch::PyramidNet(options) = arch else { bail!("{name} is not a PyramidNet") };
        rows.push(vec![
            name.to_owned(),
            options.depth().to_string(),
            options.blocks_per_stage.to_string(),
            options.alpha.to_string(),
            thousands(parameters),
        ]);
    }
    let headings = ["-a", "depth", "blocks a stage", "alpha", "parameters"].map(str::to_owned);
    rows.insert(0, headings.into());
    print!("{}", aligned(&[false, true, true, true, true], &rows));
    Ok(())
}
