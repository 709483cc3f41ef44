//! A table of vectors, looked up by index: `torch.nn.Embedding`.

use crate::{Error, Result};
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
/// # Errors
/// [`Error::Argument`] for a `padding_idx` that is no index of the table.
pub fn embedding<'a>(
    path: impl Borrow<Path<'a>>,
    num_embeddings: i64,
    embedding_dim: i64,
    options: EmbeddingOptions,
) -> Result<Embedding> {
    let padding_idx =
        options.padding_idx.map(|index| from_start(index, num_embeddings)).transpose()?;
    let mut config = EmbeddingConfig::default();
    if let Some(index) = padding_idx {
        config.padding_idx = index;
    }
    let layer = nn::embedding(path, num_embeddings, embedding_dim, config);
    if let Some(index) = padding_idx {
        let _ = no_grad(|| layer.ws.get(index).f_zero_()).map_err(Error::tensor("embedding"))?;
    }
    Ok(layer)
}

/// The index, counted from the start: tch takes one below 0 for no padding at all.
fn from_start(padding_idx: i64, num_embeddings: i64) -> Result<i64> {
    if !(-num_embeddings..num_embeddings).contains(&padding_idx) {
        return Err(Error::Argument {
            what: "padding_idx".into(),
            found: padding_idx.to_string(),
            expected: format!("an index of the {num_embeddings} embeddings"),
        });
    }
    Ok(padding_idx.rem_euclid(num_embeddings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::nn::{Module, VarStore};
    use tch::{Device, Kind, Tensor};

    fn table(padding_idx: Option<i64>) -> Result<Embedding> {
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
        let table = table(None).unwrap();
        assert!(rows_of(0.0, &table.ws).is_empty());
        assert_eq!(rows_of(1.0, &gradient(&table)), [0, 1, 2, 3]);
    }

    #[test]
    fn the_paddings_vector_starts_as_zeros_and_gets_no_gradient() {
        for padding_idx in [2, -2] {
            let table = table(Some(padding_idx)).unwrap();
            assert_eq!(rows_of(0.0, &table.ws), [2]);
            let gradient = gradient(&table);
            assert_eq!(rows_of(0.0, &gradient), [2]);
            assert_eq!(rows_of(1.0, &gradient), [0, 1, 3]);
        }
    }

    #[test]
    fn padding_that_is_no_index_of_the_table_is_refused() {
        for padding_idx in [4, -5] {
            assert_eq!(
                table(Some(padding_idx)).unwrap_err().to_string(),
                format!("padding_idx is {padding_idx}, but must be an index of the 4 embeddings")
            );
        }
    }
}
