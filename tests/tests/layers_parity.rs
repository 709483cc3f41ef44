//! Layers equal Python's to the last bit: names and order of the parameters, initial weights, outputs
//! in training, with dropout, and in evaluation, and gradients. So do the functions of `nn.init`.

use anyhow::{Result, ensure};
use tests::parity::{Both, FILE, expect_equal_tensors};

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
