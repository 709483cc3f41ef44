//! Recurrent layers with PyTorch's initial values: `torch.nn.LSTM` and `GRU`.

use super::init::default_bias;
use std::borrow::Borrow;
use tch::{Tensor, nn::ModuleT, nn::Path, no_grad};
use tch_parallel_base::options;

options! {
    /// PyTorch's keyword arguments of `nn.LSTM` and `nn.GRU`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct RnnOptions {
        /// The number of layers, each of which reads the outputs of the one before.
        pub num_layers: i64 = 1,
        /// Whether to add biases, two for each weight.
        pub bias: bool = true,
        /// Whether inputs and outputs are `[N, L, …]` instead of `[L, N, …]`; states are not affected.
        pub batch_first: bool = false,
        /// In training, the share of every layer's outputs, except the last one's, that is set to 0.
        pub dropout: f64 = 0.0,
        /// Whether a second set of weights reads every sequence from its end.
        pub bidirectional: bool = false,
    }
}

/// See [`lstm`].
#[derive(Debug)]
pub struct Lstm(Weights);

/// See [`gru`].
#[derive(Debug)]
pub struct Gru(Weights);

/// `torch.nn.LSTM(input_size, hidden_size)`: maps sequences `[L, N, input_size]` to `[L, N, H]`, H being `hidden_size`,
/// or twice that if the layer is bidirectional. A sequence alone is `[L, input_size]`.
///
/// Registers and draws `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0` and so on, like
/// `LSTM.reset_parameters`; tch's own layer starts from other numbers.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::nn::{RnnOptions, lstm};
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = RnnOptions { batch_first: true, num_layers: 2, ..Default::default() };
/// let layer = lstm(vs.root() / "rnn", 8, 16, options);
/// let words = Tensor::ones([4, 10, 8], (Kind::Float, Device::Cpu));
/// let (outputs, (h_n, c_n)) = layer.forward(&words, None, true);
/// assert_eq!(outputs.size(), [4, 10, 16]);
/// assert_eq!((h_n.size(), c_n.size()), (vec![2, 4, 16], vec![2, 4, 16]));
/// ```
pub fn lstm<'a>(
    path: impl Borrow<Path<'a>>,
    input_size: i64,
    hidden_size: i64,
    options: RnnOptions,
) -> Lstm {
    Lstm(Weights::new(path.borrow(), input_size, hidden_size, LSTM, options))
}

/// `torch.nn.GRU(input_size, hidden_size)`: like [`lstm`], with one state, of `[num_layers, N, hidden_size]`.
pub fn gru<'a>(
    path: impl Borrow<Path<'a>>,
    input_size: i64,
    hidden_size: i64,
    options: RnnOptions,
) -> Gru {
    Gru(Weights::new(path.borrow(), input_size, hidden_size, GRU, options))
}

impl Lstm {
    /// The outputs, and the states after the last step: `h_n` and `c_n`, each `[num_layers, N, hidden_size]`, with
    /// twice as many layers if bidirectional. Without `hx`, the states before the first step, these are zeros.
    ///
    /// # Panics
    /// Like tch's layers, if the input or the states do not fit.
    pub fn forward(
        &self,
        xs: &Tensor,
        hx: Option<(&Tensor, &Tensor)>,
        train: bool,
    ) -> (Tensor, (Tensor, Tensor)) {
        let Weights { flat, options, .. } = &self.0;
        let sequences = self.0.batched(xs, xs, self.0.batch_dim());
        let hx = match hx {
            Some((h, c)) => [h, c].map(|state| self.0.batched(xs, state, 1)),
            None => [(); 2].map(|()| self.0.zeros(&sequences)),
        };
        let RnnOptions { num_layers, bias, batch_first, dropout, bidirectional } = *options;
        let (outputs, h, c) =
            sequences.lstm(&hx, flat, bias, num_layers, dropout, train, bidirectional, batch_first);
        let alone = |tensor, dim| self.0.like(xs, tensor, dim);
        (alone(outputs, self.0.batch_dim()), (alone(h, 1), alone(c, 1)))
    }
}

impl Gru {
    /// The outputs, and the state after the last step; see [`Lstm::forward`].
    ///
    /// # Panics
    /// Like tch's layers, if the input or the state does not fit.
    pub fn forward(&self, xs: &Tensor, hx: Option<&Tensor>, train: bool) -> (Tensor, Tensor) {
        let Weights { flat, options, .. } = &self.0;
        let sequences = self.0.batched(xs, xs, self.0.batch_dim());
        let h = hx.map_or_else(|| self.0.zeros(&sequences), |h| self.0.batched(xs, h, 1));
        let RnnOptions { num_layers, bias, batch_first, dropout, bidirectional } = *options;
        let (outputs, h) =
            sequences.gru(&h, flat, bias, num_layers, dropout, train, bidirectional, batch_first);
        (self.0.like(xs, outputs, self.0.batch_dim()), self.0.like(xs, h, 1))
    }
}

/// The outputs, from states of zeros.
impl ModuleT for Lstm {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.forward(xs, None, train).0
    }
}

/// The outputs, from a state of zeros.
impl ModuleT for Gru {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.forward(xs, None, train).0
    }
}

/// What tells the cells apart: how many gates one has, and its number in cuDNN.
type Cell = (i64, i64);

const LSTM: Cell = (4, 2);
const GRU: Cell = (3, 3);

#[derive(Debug)]
struct Weights {
    /// In the order of registration, which ATen expects.
    flat: Vec<Tensor>,
    hidden_size: i64,
    options: RnnOptions,
}

impl Weights {
    fn new(
        path: &Path<'_>,
        input_size: i64,
        hidden_size: i64,
        (gates, cudnn_mode): Cell,
        options: RnnOptions,
    ) -> Self {
        let directions: &[&str] = if options.bidirectional { &["", "_reverse"] } else { &[""] };
        let rows = gates * hidden_size;
        // Weights and biases are drawn alike.
        let init = default_bias(hidden_size);
        let mut flat = Vec::new();
        for layer in 0..options.num_layers {
            let inputs =
                if layer == 0 { input_size } else { hidden_size * directions.len() as i64 };
            for direction in directions {
                let mut add = |name, shape: &[i64]| {
                    flat.push(path.var(&format!("{name}_l{layer}{direction}"), shape, init));
                };
                add("weight_ih", &[rows, inputs]);
                add("weight_hh", &[rows, hidden_size]);
                if options.bias {
                    add("bias_ih", &[rows]);
                    add("bias_hh", &[rows]);
                }
            }
        }
        if path.device().is_cuda() && tch::Cuda::cudnn_is_available() {
            // Into one piece of memory, or cuDNN copies them there in every pass.
            let (per_layer, no_projection) = (if options.bias { 4 } else { 2 }, 0);
            let _ = no_grad(|| {
                Tensor::internal_cudnn_rnn_flatten_weight(
                    &flat,
                    per_layer,
                    input_size,
                    cudnn_mode,
                    hidden_size,
                    no_projection,
                    options.num_layers,
                    options.batch_first,
                    options.bidirectional,
                )
            });
        }
        Weights { flat, hidden_size, options }
    }

    fn batch_dim(&self) -> i64 {
        if self.options.batch_first { 0 } else { 1 }
    }

    /// The input, or a caller's state for it, with a batch dimension if the input has none.
    fn batched(&self, xs: &Tensor, tensor: &Tensor, batch_dim: i64) -> Tensor {
        if xs.dim() == 2 { tensor.unsqueeze(batch_dim) } else { tensor.shallow_clone() }
    }

    fn zeros(&self, sequences: &Tensor) -> Tensor {
        let RnnOptions { num_layers, bidirectional, .. } = self.options;
        let layers = if bidirectional { 2 * num_layers } else { num_layers };
        let batch = sequences.size()[self.batch_dim() as usize];
        let size = [layers, batch, self.hidden_size];
        Tensor::zeros(size, (sequences.kind(), sequences.device()))
    }

    /// A result without the batch dimension that the input did not have.
    fn like(&self, xs: &Tensor, result: Tensor, batch_dim: i64) -> Tensor {
        if xs.dim() == 2 { result.squeeze_dim(batch_dim) } else { result }
    }
}
