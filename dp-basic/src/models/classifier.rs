//! A classifier in two parts, large enough that a step takes longer than the copies around it.

use tch::nn::{self, Path, Sequential};
use tch_parallel::nn::{LinearOptions, linear};

/// Numbers in a row of the input.
pub const FEATURES: i64 = 784;
/// Numbers in a row of the output.
pub const CLASSES: i64 = 10;
/// Units of each hidden layer.
const HIDDEN: i64 = 1024;

/// The front and the back in a row: 2,913,290 parameters.
pub fn classifier(path: &Path<'_>) -> Sequential {
    nn::seq().add(front(&(path / "module1"))).add(back(&(path / "module2")))
}

/// `module1`: rows `[batch, 784]` to activations `[batch, 1024]`.
pub fn front(path: &Path<'_>) -> Sequential {
    nn::seq()
        .add(linear(path / "0", FEATURES, HIDDEN, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add(linear(path / "2", HIDDEN, HIDDEN, LinearOptions::default()))
        .add_fn(|x| x.relu())
}

/// `module2`: activations `[batch, 1024]` to logits `[batch, 10]`.
pub fn back(path: &Path<'_>) -> Sequential {
    nn::seq()
        .add(linear(path / "0", HIDDEN, HIDDEN, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add(linear(path / "2", HIDDEN, CLASSES, LinearOptions::default()))
}
