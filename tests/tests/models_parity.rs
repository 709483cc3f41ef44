//! Layers and networks equal their Python originals to the last bit: the initial weights for a seed, the names and the
//! order of the parameters, and outputs, gradients and running statistics in training, with dropout, and in evaluation.

use crate::prelude::*;

fn expect_parity(arch: &str) -> Result<()> {
    let Both { tensors, printed: [rust, python] } =
        expect_equal_tensors("models", "models", &[arch, FILE])?;
    assert_eq!(rust, python, "the order of {arch}'s parameters");
    // Rules out a batch norm that does nothing, on both sides.
    ensure!(tensors["initial.bn1.running_mean"] != tensors["train.bn1.running_mean"]);
    ensure!(tensors["train.logits"] != tensors["eval.logits"]);
    Ok(())
}

cases! {
    fn resnet18_equals_torchvisions() = expect_parity("resnet18");
    fn resnet50_equals_torchvisions() = expect_parity("resnet50");
    fn a_pyramidnet_equals_python() = expect_parity("pyramidnet14_a10");
    fn a_pyramidnet_of_bottlenecks_equals_python() = expect_parity("pyramidnet20_a9_bn");
    fn the_tutorials_pyramidnet_equals_python() = expect_parity("pyramidnet");
}

#[test]
fn every_layer_and_every_function_of_init_equals_python() -> Result<()> {
    let Both { tensors, printed: [rust, python] } =
        expect_equal_tensors("layers", "layers", &[FILE])?;
    assert_eq!(rust, python, "the order of the parameters");
    // Rules out dropout that does nothing, on both sides.
    for layer in ["lstm", "gru", "attention", "encoder_layer"] {
        let outputs = ["train", "eval"].map(|mode| &tensors[&format!("{layer}.{mode}.0")]);
        ensure!(outputs[0] != outputs[1], "{layer}");
    }
    Ok(())
}
