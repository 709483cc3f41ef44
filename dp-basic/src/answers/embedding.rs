//! What becomes of a table that every device needs.

use super::small::{difference, equality, number, unwrapped, waves, wrapped};
use super::{Question, Theme};
use crate::models::EmbeddingLinear;
use anyhow::Result;
use report::thousands;
use tch::nn::{Module, VarStore};
use tch::{Kind, Reduction, Tensor};
use tch_parallel::Devices;
use tch_parallel::data_parallel::DataParallelOptions;

pub const THEME: Theme = Theme {
    title: "Embeddings",
    questions: &[Question {
        rows: &["S0.5"],
        text: "How are common embeddings separated?",
        numbers: || {
            let rows = shared_token()?;
            Ok(vec![
                format!(
                    "the table's row of token 7, which is in both chunks: a gradient of norm {:.4}",
                    rows.norm
                ),
                format!(
                    "the sum of the gradients from chunk 0 ({:.4}) and chunk 1 ({:.4}): {}",
                    rows.parts[0],
                    rows.parts[1],
                    equality(rows.difference)
                ),
                format!(
                    "rows with a gradient: {} of {}",
                    rows.touched,
                    thousands(EmbeddingLinear::TOKENS as usize)
                ),
            ])
        },
        answer: "They are not: every device has the whole table, and the gradients of its rows are \
                 summed.",
    }],
};

struct SharedToken {
    /// Of the gradient of the row that both chunks use.
    norm: f64,
    /// The norm of what each chunk contributes to it.
    parts: [f64; 2],
    /// Between it and the sum of what the chunks contribute.
    difference: f64,
    /// Rows of the table that get a gradient.
    touched: usize,
}

fn shared_token() -> Result<SharedToken> {
    let tokens = Tensor::from_slice(&[7i64, 1, 7, 2]);
    let targets = waves(&[4, EmbeddingLinear::WIDTH]);
    let row = |vs: &VarStore| vs.variables()["embedding.weight"].grad().get(7);

    let (vs, model) =
        wrapped(&Devices::cpu(2)?, DataParallelOptions::default(), EmbeddingLinear::new)?;
    let output = model.f_forward_t(&tokens, true)?;
    model.backward(&output.mse_loss(&targets, Reduction::Mean))?;
    let found = row(&vs);
    let table = vs.variables()["embedding.weight"].grad();
    let touched = table.abs().sum_dim_intlist(1, false, Kind::Float).ne(0.0).sum(Kind::Int64);

    let parts = [0, 2].map(|start| {
        let (vs, alone) = unwrapped(EmbeddingLinear::new);
        let output = alone.forward(&tokens.narrow(0, start, 2));
        // The share of these two rows in the mean over all four.
        (output.mse_loss(&targets.narrow(0, start, 2), Reduction::Mean) * 0.5).backward();
        row(&vs)
    });
    Ok(SharedToken {
        norm: number(&found.norm())?,
        parts: [number(&parts[0].norm())?, number(&parts[1].norm())?],
        difference: difference(&found, &(&parts[0] + &parts[1]))?,
        touched: touched.int64_value(&[]) as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::super::small::ROUNDING;
    use super::*;

    #[test]
    fn a_row_that_two_chunks_use_gets_both_gradients() {
        let shared = shared_token().unwrap();
        assert!(shared.difference <= ROUNDING, "{}", shared.difference);
        assert!(shared.parts.iter().all(|part| *part > 0.0), "{:?}", shared.parts);
        assert_eq!(shared.touched, 3);
    }
}
