//! A step of a sharded model (chapter: sharding.md)
//!
//! Build a network of three `layer`s, one after the other, at the paths "0", "1" and "2" of the root. Shard it with
//! `FullyShard`, so that each layer is a unit of its own. Then run the forward pass, and the backward pass from the
//! mean of the output. `root` builds the model and `shard` a unit; `forward` runs the model and `call` a unit.
//! The check compares gradients; it does not see the units.

use crate::prelude::*;

pub fn layer(path: &nn::Path<'_>) -> nn::Linear {
    nn::linear(path, 4, 4, Default::default())
}

pub fn sharded_step(group: &ProcessGroup, vs: &VarStore, input: &Tensor) -> Result<()> {
    todo!("shard the layers and the root, and run both passes")
}

pub fn check(
    group: &ProcessGroup,
    sharded_step: impl Fn(&ProcessGroup, &VarStore, &Tensor) -> Result<()>,
) -> Result<()> {
    let [sharded, whole] = [(); 2].map(|()| VarStore::new(Device::Cpu));
    let inputs = Tensor::arange(8, (Kind::Float, Device::Cpu)).view([2, 4]);
    tch::manual_seed(1);
    let output =
        (0..3).fold(inputs.shallow_clone(), |x, at| layer(&(whole.root() / at)).forward(&x));
    output.mean(Kind::Float).backward();
    tch::manual_seed(1);
    sharded_step(group, &sharded, &inputs.narrow(0, group.rank() as i64, 1))?;
    let sharded = sharded.variables();
    for (name, parameter) in whole.variables().into_iter().collect::<BTreeMap<_, _>>() {
        let found = sharded.get(&name).map(Tensor::grad).filter(Tensor::defined);
        let expected = parameter.grad().chunk(2, 0).swap_remove(group.rank());
        let what = format!("this rank's half of the gradient of {name}");
        agree(group, &what, &found.unwrap_or_else(|| Tensor::from(0)), &expected)?;
    }
    Ok(())
}
