//! `torch.nn.Linear` and `Embedding`, with PyTorch's initial values.

use super::init::{default_bias, default_weight};
use std::borrow::Borrow;
use tch::{nn, nn::Embedding, nn::EmbeddingConfig, nn::Linear, nn::Path, no_grad};
use tch_parallel_base::options;

options! {
    /// PyTorch's keyword arguments of `nn.Linear`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct LinearOptions {
        /// Whether to add a bias; some last layers have none.
        pub bias: bool = true,
    }
}

/// `torch.nn.Linear(in_features, out_features)`: maps `[.., in_features]` to `[.., out_features]`.
///
/// Draws the weight, `[out_features, in_features]`, then the bias, from the global generator, like
/// `Linear.reset_parameters`; tch's own layer draws them in the opposite order.
///
/// # Panics
/// Like tch's layers: if such tensors cannot be created; in the forward pass if the input is not `[.., in_features]`.
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

/// PyTorch's keyword arguments of `nn.Embedding`, with its defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmbeddingOptions {
    /// The index for padding: its vector starts as zeros and gets no gradient. A negative index counts from the end.
    pub padding_idx: Option<i64>,
    /// Whether the weight's gradient is sparse, with only the rows that were looked up: for large
    /// tables, and for optimizers that support it, such as `SparseAdam`.
    pub sparse: bool,
}

/// `torch.nn.Embedding(num_embeddings, embedding_dim)`: maps indices `[..]` below `num_embeddings` to vectors
/// `[.., embedding_dim]`.
///
/// Draws the weight, `[num_embeddings, embedding_dim]`, from the global generator, like `Embedding.reset_parameters`:
/// the padding vector is drawn too, then set to zeros. tch's own layer leaves it as drawn.
///
/// ```
/// use tch::{Device, Tensor, nn::VarStore};
/// use tch_parallel::nn::{EmbeddingOptions, embedding};
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = EmbeddingOptions { padding_idx: Some(0), ..Default::default() };
/// let layer = embedding(vs.root() / "words", 1000, 16, options);
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
    let padding_idx = options.padding_idx.map(|index| {
        assert!(
            (-num_embeddings..num_embeddings).contains(&index),
            "padding_idx is {index}, but must be an index of the {num_embeddings} embeddings"
        );
        // For tch, a negative one means no padding.
        index.rem_euclid(num_embeddings)
    });
    let mut config = EmbeddingConfig { sparse: options.sparse, ..Default::default() };
    config.padding_idx = padding_idx.unwrap_or(config.padding_idx);
    let layer = nn::embedding(path, num_embeddings, embedding_dim, config);
    if let Some(index) = padding_idx {
        let _ = no_grad(|| layer.ws.get(index).zero_());
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor, nn::Module, nn::VarStore};

    fn table(num_embeddings: i64, padding_idx: i64, sparse: bool) -> Embedding {
        let options = EmbeddingOptions { padding_idx: Some(padding_idx), sparse };
        embedding(VarStore::new(Device::Cpu).root(), num_embeddings, 3, options)
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
    fn a_layer_without_inputs_has_a_bias_of_zeros() {
        let layer = linear(VarStore::new(Device::Cpu).root(), 0, 2, LinearOptions::default());
        let outputs = layer.forward(&Tensor::ones([3, 0], (Kind::Float, Device::Cpu)));
        assert_eq!(outputs, Tensor::zeros([3, 2], (Kind::Float, Device::Cpu)));
    }

    #[test]
    fn the_paddings_vector_starts_as_zeros_and_gets_no_gradient() {
        for padding_idx in [2, -2] {
            let table = table(4, padding_idx, false);
            assert_eq!(rows_of(0.0, &table.ws), [2]);
            let gradient = gradient(&table);
            assert_eq!(rows_of(0.0, &gradient), [2]);
            assert_eq!(rows_of(1.0, &gradient), [0, 1, 3]);
        }
    }

    #[test]
    fn a_sparse_gradient_is_the_dense_one_with_only_the_rows_looked_up() {
        let [sparse, dense] = [true, false].map(|sparse| gradient(&table(9, 0, sparse)));
        assert!(sparse.is_sparse() && !dense.is_sparse());
        assert_eq!(sparse.to_dense(None, false), dense);
        // Of four words one is the padding.
        assert_eq!(sparse.coalesce().values().size(), [3, 3]);
    }

    #[test]
    #[should_panic = "padding_idx is 4, but must be an index of the 4 embeddings"]
    fn padding_beyond_the_table_is_refused() {
        table(4, 4, false);
    }

    #[test]
    #[should_panic = "padding_idx is -5, but must be an index of the 4 embeddings"]
    fn padding_before_the_table_is_refused() {
        table(4, -5, false);
    }
}
