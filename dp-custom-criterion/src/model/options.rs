//! How large the model is.

use tch_parallel::{Error, Result};

/// codertimo's arguments of `BERT`, and the size of the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelOptions {
    /// How many tokens there are, special ones included; an id is smaller than that.
    pub vocab_size: i64,
    /// The length of a position's vector.
    pub hidden: i64,
    /// How many transformer blocks lie on top of each other.
    pub layers: i64,
    /// Into how many attentions a vector is split.
    pub attn_heads: i64,
    /// The share of values that is set to zero in training.
    pub dropout: f64,
}

impl ModelOptions {
    /// # Errors
    /// [`Error::Argument`] for sizes from which no model can be built.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, found: String, expected: String| {
            Err(Error::Argument { what: what.into(), found, expected })
        };
        for (what, value) in [
            ("--hidden", self.hidden),
            ("--layers", self.layers),
            ("--attn-heads", self.attn_heads),
        ] {
            if value < 1 {
                return refuse(what, value.to_string(), "at least 1".into());
            }
        }
        if self.hidden % 2 != 0 {
            // The table of positions pairs each sine with a cosine.
            return refuse("--hidden", self.hidden.to_string(), "an even number".into());
        }
        if self.hidden % self.attn_heads != 0 {
            return refuse(
                "--attn-heads",
                self.attn_heads.to_string(),
                format!("a divisor of --hidden, which is {}", self.hidden),
            );
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return refuse("--dropout", self.dropout.to_string(), "a share from 0 to 1".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: ModelOptions =
        ModelOptions { vocab_size: 100, hidden: 32, layers: 2, attn_heads: 2, dropout: 0.1 };

    #[test]
    fn sizes_that_make_no_model_are_refused() {
        SOUND.check().unwrap();
        for (options, expected) in [
            (ModelOptions { layers: 0, ..SOUND }, "--layers is 0, but must be at least 1"),
            (ModelOptions { hidden: 33, ..SOUND }, "--hidden is 33, but must be an even number"),
            (
                ModelOptions { attn_heads: 5, ..SOUND },
                "--attn-heads is 5, but must be a divisor of --hidden, which is 32",
            ),
            (
                ModelOptions { dropout: f64::NAN, ..SOUND },
                "--dropout is NaN, but must be a share from 0 to 1",
            ),
        ] {
            assert_eq!(options.check().unwrap_err().to_string(), expected);
        }
    }
}
