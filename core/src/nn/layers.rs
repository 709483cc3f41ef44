//! Layers with PyTorch's initial values: `torch.nn.Linear`, `Conv2d` and `Embedding`.

use super::init::{default_bias, default_weight};
use std::borrow::Borrow;
use tch::nn::{self, Embedding, EmbeddingConfig, Linear, Module, Path};
use tch::{Tensor, no_grad};

/// PyTorch's keyword arguments of `nn.Linear`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearOptions {
    /// Whether to add a bias; some last layers have none.
    pub bias: bool,
}

impl Default for LinearOptions {
    fn default() -> Self {
        LinearOptions { bias: true }
    }
}

/// `torch.nn.Linear(in_features, out_features)`: maps `[.., in_features]` to `[.., out_features]`.
///
/// Draws the weight, `[out_features, in_features]`, then the bias, from the global generator, like
/// `Linear.reset_parameters`; tch's own layer draws them in the opposite order.
///
/// # Panics
/// Like tch's layers: if tensors of these shapes cannot be created; and in the forward pass if the
/// input is not `[.., in_features]`.
pub fn linear<'a>(
    path: impl Borrow<Path<'a>>,
    in_features: i64,
    out_features: i64,
    options: LinearOptions,
) -> Linear {
    let path = path.borrow();
    let ws = path.var("weight", &[out_features, in_features], default_weight(in_features));
    let bs = options.bias.then(|| path.var("bias", &[out_features], default_bias(in_features)));
    Linear { ws, bs }
}

/// PyTorch's keyword arguments of `nn.Conv2d`, with its defaults; each applies to both dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2dOptions {
    /// How many pixels the kernel moves between outputs: 2 halves the image.
    pub stride: i64,
    /// How many zeros are added on every side: half the kernel size preserves the image's size.
    pub padding: i64,
    /// The distance between the kernel's elements.
    pub dilation: i64,
    /// The number of groups into which the channels are split, each with its own kernels.
    pub groups: i64,
    /// Whether to add a bias to each output channel; before a batch norm, which subtracts the mean,
    /// it is useless.
    pub bias: bool,
}

impl Default for Conv2dOptions {
    fn default() -> Self {
        Conv2dOptions { stride: 1, padding: 0, dilation: 1, groups: 1, bias: true }
    }
}

/// See [`conv2d`].
#[derive(Debug)]
pub struct Conv2d {
    /// `[out_channels, in_channels / groups, kernel_size, kernel_size]`
    pub ws: Tensor,
    /// `[out_channels]`
    pub bs: Option<Tensor>,
    options: Conv2dOptions,
}

/// `torch.nn.Conv2d(in_channels, out_channels, kernel_size)`: maps images
/// `[N, in_channels, H, W]` to `[N, out_channels, H', W']`.
///
/// Registers and draws the weight, then the bias, like `Conv2d.reset_parameters`; tch's own layer
/// uses the opposite order and another distribution.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::nn::{Conv2dOptions, conv2d};
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = Conv2dOptions { stride: 2, padding: 1, ..Default::default() };
/// let layer = conv2d(vs.root() / "conv1", 3, 64, 3, options);
/// let images = Tensor::ones([8, 3, 32, 32], (Kind::Float, Device::Cpu));
/// assert_eq!(images.apply(&layer).size(), [8, 64, 16, 16]);
/// ```
///
/// # Panics
/// If `groups` is not at least 1 or does not divide both `in_channels` and `out_channels`; if
/// tensors of these shapes cannot be created; and in the forward pass, like tch's layers, if the
/// input does not fit.
pub fn conv2d<'a>(
    path: impl Borrow<Path<'a>>,
    in_channels: i64,
    out_channels: i64,
    kernel_size: i64,
    options: Conv2dOptions,
) -> Conv2d {
    let path = path.borrow();
    let groups = options.groups;
    assert!(groups >= 1, "groups is {groups}, but must be at least 1");
    for (name, channels) in [("in_channels", in_channels), ("out_channels", out_channels)] {
        assert!(
            channels % groups == 0,
            "{name} is {channels}, but must be divisible by groups, {groups}"
        );
    }
    let kernel = [out_channels, in_channels / groups, kernel_size, kernel_size];
    let fan_in = kernel[1..].iter().product();
    let ws = path.var("weight", &kernel, default_weight(fan_in));
    let bs = options.bias.then(|| path.var("bias", &[out_channels], default_bias(fan_in)));
    Conv2d { ws, bs, options }
}

impl Module for Conv2d {
    fn forward(&self, xs: &Tensor) -> Tensor {
        let Conv2dOptions { stride, padding, dilation, groups, bias: _ } = self.options;
        xs.conv2d(&self.ws, self.bs.as_ref(), [stride; 2], [padding; 2], [dilation; 2], groups)
    }
}

/// PyTorch's keyword arguments of `nn.Embedding`, with its defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmbeddingOptions {
    /// The index used for padding: its vector starts as zeros and gets no gradient. A negative
    /// index counts from the end.
    pub padding_idx: Option<i64>,
}

/// `torch.nn.Embedding(num_embeddings, embedding_dim)`: maps indices `[..]` below `num_embeddings`
/// to vectors `[.., embedding_dim]`.
///
/// Draws the weight, `[num_embeddings, embedding_dim]`, from the global generator, like
/// `Embedding.reset_parameters`: the padding vector is drawn too, then set to zeros. tch's own
/// layer leaves it as drawn.
///
/// ```
/// use tch::{Device, Tensor, nn::VarStore};
/// use tch_parallel::nn::{EmbeddingOptions, embedding};
///
/// let vs = VarStore::new(Device::Cpu);
/// let layer = embedding(vs.root() / "words", 1000, 16, EmbeddingOptions { padding_idx: Some(0) });
/// let vectors = Tensor::from_slice(&[5i64, 7, 0]).apply(&layer);
/// assert_eq!(vectors.size(), [3, 16]);
/// assert_eq!(vectors.get(2).abs().max().double_value(&[]), 0.0);
/// ```
///
/// # Panics
/// If `padding_idx` is not an index of the table, and, like tch's layers, for invalid sizes.
pub fn embedding<'a>(
    path: impl Borrow<Path<'a>>,
    num_embeddings: i64,
    embedding_dim: i64,
    options: EmbeddingOptions,
) -> Embedding {
    let padding_idx = options.padding_idx.map(|index| from_start(index, num_embeddings));
    let mut config = EmbeddingConfig::default();
    if let Some(index) = padding_idx {
        config.padding_idx = index;
    }
    let layer = nn::embedding(path, num_embeddings, embedding_dim, config);
    if let Some(index) = padding_idx {
        let _ = no_grad(|| layer.ws.get(index).zero_());
    }
    layer
}

/// The index counted from the start: for tch, a negative one means no padding.
fn from_start(padding_idx: i64, num_embeddings: i64) -> i64 {
    assert!(
        (-num_embeddings..num_embeddings).contains(&padding_idx),
        "padding_idx is {padding_idx}, but must be an index of the {num_embeddings} embeddings"
    );
    padding_idx.rem_euclid(num_embeddings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, nn::VarStore};

    #[test]
    fn without_a_bias_there_is_none() {
        let vs = VarStore::new(Device::Cpu);
        let layer = linear(vs.root(), 3, 2, LinearOptions { bias: false });
        assert!(layer.bs.is_none());
        assert_eq!(vs.len(), 1);
    }

    fn output(options: Conv2dOptions) -> Vec<i64> {
        let vs = VarStore::new(Device::Cpu);
        let images = Tensor::zeros([7, 4, 9, 9], (Kind::Float, Device::Cpu));
        conv2d(vs.root(), 4, 6, 3, options).forward(&images).size()
    }

    #[test]
    fn images_become_smaller_as_the_options_say() {
        let options = Conv2dOptions::default();
        assert_eq!(output(options), [7, 6, 7, 7]);
        assert_eq!(output(Conv2dOptions { padding: 1, ..options }), [7, 6, 9, 9]);
        assert_eq!(output(Conv2dOptions { stride: 2, ..options }), [7, 6, 4, 4]);
        assert_eq!(output(Conv2dOptions { dilation: 2, ..options }), [7, 6, 5, 5]);
    }

    #[test]
    fn groups_see_only_their_own_channels() {
        let vs = VarStore::new(Device::Cpu);
        let options = Conv2dOptions { groups: 2, bias: false, ..Default::default() };
        assert_eq!(conv2d(vs.root(), 4, 6, 3, options).ws.size(), [6, 2, 3, 3]);
        assert_eq!(vs.len(), 1);
    }

    #[test]
    #[should_panic = "groups is 0, but must be at least 1"]
    fn no_groups_at_all_are_refused() {
        output(Conv2dOptions { groups: 0, ..Default::default() });
    }

    #[test]
    #[should_panic = "in_channels is 4, but must be divisible by groups, 3"]
    fn channels_that_do_not_go_into_the_groups_are_refused() {
        output(Conv2dOptions { groups: 3, ..Default::default() });
    }

    fn table(padding_idx: Option<i64>) -> Embedding {
        embedding(VarStore::new(Device::Cpu).root(), 4, 3, EmbeddingOptions { padding_idx })
    }

    /// The rows of a tensor that are filled with `value`.
    fn rows_of(value: f32, tensor: &Tensor) -> Vec<usize> {
        let rows = Vec::<Vec<f32>>::try_from(tensor).unwrap();
        (0..rows.len()).filter(|&row| rows[row].iter().all(|&found| found == value)).collect()
    }

    /// The gradient after looking every index up once.
    fn gradient(table: &Embedding) -> Tensor {
        table.forward(&Tensor::arange(4, (Kind::Int64, Device::Cpu))).sum(Kind::Float).backward();
        table.ws.grad()
    }

    #[test]
    fn without_padding_every_vector_is_drawn_and_trained() {
        let table = table(None);
        assert!(rows_of(0.0, &table.ws).is_empty());
        assert_eq!(rows_of(1.0, &gradient(&table)), [0, 1, 2, 3]);
    }

    #[test]
    fn the_paddings_vector_starts_as_zeros_and_gets_no_gradient() {
        for padding_idx in [2, -2] {
            let table = table(Some(padding_idx));
            assert_eq!(rows_of(0.0, &table.ws), [2]);
            let gradient = gradient(&table);
            assert_eq!(rows_of(0.0, &gradient), [2]);
            assert_eq!(rows_of(1.0, &gradient), [0, 1, 3]);
        }
    }

    #[test]
    #[should_panic = "padding_idx is 4, but must be an index of the 4 embeddings"]
    fn padding_beyond_the_table_is_refused() {
        table(Some(4));
    }

    #[test]
    #[should_panic = "padding_idx is -5, but must be an index of the 4 embeddings"]
    fn padding_before_the_table_is_refused() {
        table(Some(-5));
    }
}
