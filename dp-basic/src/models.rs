//! The networks that the programs train.

use tch::nn::{self, Embedding, Linear, Module, Path, Sequential};
use tch::{Reduction, Tensor};
use tch_parallel::nn::{LinearOptions, linear};

/// The model of the thread "How pytorch's parallel method and distributed method works?", in a form
/// that runs (S0.3): the thread gives its layers to `super().__init__`, which takes no arguments.
///
/// `Embedding(1000, 10)`, then `Linear(10, 10)`, which the thread calls `rnn`: 10,110 parameters.
#[derive(Debug)]
pub struct EmbeddingLinear {
    /// A row of ten numbers for each of a thousand tokens.
    pub embedding: Embedding,
    rnn: Linear,
}

impl EmbeddingLinear {
    /// Size of the vocabulary.
    pub const TOKENS: i64 = 1000;
    /// Width of the embedding and of the output.
    pub const WIDTH: i64 = 10;

    pub fn new(path: &Path<'_>) -> Self {
        let (tokens, width) = (Self::TOKENS, Self::WIDTH);
        let embedding = nn::embedding(path / "embedding", tokens, width, Default::default());
        let rnn = linear(path / "rnn", width, width, LinearOptions::default());
        EmbeddingLinear { embedding, rnn }
    }
}

// ANCHOR: embedding_linear
impl Module for EmbeddingLinear {
    /// Maps tokens `[batch]` to numbers `[batch, 10]`.
    fn forward(&self, tokens: &Tensor) -> Tensor {
        self.rnn.forward(&self.embedding.forward(tokens))
    }
}
// ANCHOR_END: embedding_linear

/// `My_Model` of the forum question on understanding DataParallel, which returns its result and its
/// loss: `Linear`, `ReLU` and `Linear` to one number, and the sum of the errors against two targets.
pub struct TwoTargets {
    linear1: Linear,
    classifier: Linear,
}

impl TwoTargets {
    /// Width of the question's input.
    pub const FEATURES: i64 = 768;
    /// Width of the question's hidden layer, which gives the model 59,136,001 parameters.
    pub const HIDDEN: i64 = 76_800;

    pub fn new(path: &Path<'_>, features: i64, hidden: i64) -> Self {
        let linear1 = linear(path / "linear1", features, hidden, LinearOptions::default());
        let classifier = linear(path / "classifier", hidden, 1, LinearOptions::default());
        TwoTargets { linear1, classifier }
    }

    /// Maps rows `[batch, features]` and two targets `[batch]` to the result, `[batch, 1]`, and the loss, a scalar.
    pub fn forward(&self, (x, y, y2): (Tensor, Tensor, Tensor)) -> (Tensor, Tensor) {
        // ANCHOR: two_targets
        let result = self.classifier.forward(&self.linear1.forward(&x).relu());
        let column = result.reshape([-1]);
        let loss1 = column.mse_loss(&y, Reduction::Mean);
        let loss2 = column.mse_loss(&y2, Reduction::Mean);
        (result, loss1 + loss2)
        // ANCHOR_END: two_targets
    }
}

// The classifier in two parts is so large that a step takes longer than the copies around it.

/// Width of the input.
pub const FEATURES: i64 = 784;
/// Width of the output.
pub const CLASSES: i64 = 10;
/// Width of each hidden layer.
const HIDDEN: i64 = 1024;

/// Both parts, one after the other: 2,913,290 parameters.
pub fn classifier(path: &Path<'_>) -> Sequential {
    nn::seq().add(front(&(path / "module1"))).add(back(&(path / "module2")))
}

/// `module1`, which maps rows `[batch, 784]` to activations `[batch, 1024]`.
pub fn front(path: &Path<'_>) -> Sequential {
    two_layers(path, FEATURES, HIDDEN).add_fn(|x| x.relu())
}

/// `module2`, which maps activations `[batch, 1024]` to logits `[batch, 10]`.
pub fn back(path: &Path<'_>) -> Sequential {
    two_layers(path, HIDDEN, CLASSES)
}

fn two_layers(path: &Path<'_>, inputs: i64, outputs: i64) -> Sequential {
    nn::seq()
        .add(linear(path / "0", inputs, HIDDEN, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add(linear(path / "2", HIDDEN, outputs, LinearOptions::default()))
}
