//! A table of vectors, looked up by index: `torch.nn.Embedding`.

use std::borrow::Borrow;
use tch::nn::{self, Embedding, EmbeddingConfig, Path};
use tch::no_grad;

/// PyTorch's keyword arguments of `nn.Embedding`, with its defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EmbeddingOptions {
    /// The index that only fills up short sequences: its vector starts as zeros and gets no
    /// gradient. Below 0 it counts from the end.
    pub padding_idx: Option<i64>,
}

/// `torch.nn.Embedding(num_embeddings, embedding_dim)`: maps indices `[..]` below `num_embeddings`
/// to vectors `[.., embedding_dim]`.
///
/// Draws the weight, `[num_embeddings, embedding_dim]`, from the global generator, as
/// `Embedding.reset_parameters` does, the padding's vector included before it is set to zeros;
/// tch's own layer leaves that vector as it was drawn.
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
/// For a `padding_idx` that is no index of the table, as tch's layers do for sizes that make none.
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

/// The index, counted from the start: tch takes one below 0 for no padding at all.
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
    use tch::nn::{Module, VarStore};
    use tch::{Device, Kind, Tensor};

    fn table(padding_idx: Option<i64>) -> Embedding {
        embedding(VarStore::new(Device::Cpu).root(), 4, 3, EmbeddingOptions { padding_idx })
    }

    /// Which rows of a tensor hold nothing but this.
    fn rows_of(value: f32, tensor: &Tensor) -> Vec<usize> {
        let rows = Vec::<Vec<f32>>::try_from(tensor).unwrap();
        (0..rows.len()).filter(|&row| rows[row].iter().all(|&found| found == value)).collect()
    }

    /// The gradient after every index was looked up once.
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
