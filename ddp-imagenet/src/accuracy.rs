//! How many guesses are right.

use anyhow::Result;
use tch::{Kind, Tensor};

/// How many per cent of a batch have their class among the `k` that `output` holds for likeliest,
/// for each of `topk`. main.py's function of this name.
///
/// `output`: `[batch, classes]`; `target`: `[batch]`. Of fewer classes than `k` every guess is
/// right.
pub fn accuracy<const N: usize>(
    output: &Tensor,
    target: &Tensor,
    topk: [i64; N],
) -> Result<[f64; N]> {
    let (batch, classes) = output.size2()?;
    let widest = topk.into_iter().max().unwrap_or(0).min(classes);
    let (_, guesses) = output.f_topk(widest, 1, true, true)?;
    let correct = guesses.f_eq_tensor(&target.f_view([-1, 1])?)?;
    let mut shares = [0.0; N];
    for (share, k) in shares.iter_mut().zip(topk) {
        let right = correct.f_narrow(1, 0, k.min(classes))?.f_sum(Kind::Int64)?;
        *share = 100.0 * i64::try_from(right)? as f64 / batch as f64;
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_counts_where_it_is_among_the_likeliest() {
        let output = Tensor::from_slice2(&[
            [0.1, 0.2, 0.4, 0.3], // 2, 3, 1, 0
            [0.4, 0.3, 0.2, 0.1], // 0, 1, 2, 3
        ]);
        let target = Tensor::from_slice(&[3i64, 0]);
        assert_eq!(accuracy(&output, &target, [1, 2]).unwrap(), [50.0, 100.0]);
        let target = Tensor::from_slice(&[0i64, 3]);
        assert_eq!(accuracy(&output, &target, [1, 3]).unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn with_fewer_classes_than_guesses_all_are_right() {
        let output = Tensor::from_slice2(&[[0.9, 0.1]]);
        let target = Tensor::from_slice(&[1i64]);
        assert_eq!(accuracy(&output, &target, [1, 5]).unwrap(), [0.0, 100.0]);
    }
}
