//! Orthonormal columns.

use c10d_sys::arithmetic::{add_number_, norm};
use tch::{Kind, TchError, Tensor};

/// Orthogonalizes the columns of each matrix of a batch `[batch, rows, columns]`, in place. `_orthogonalize`
pub(super) fn orthogonalize(matrices: &Tensor, epsilon: f64) -> Result<(), TchError> {
    let (batch, _, columns) = matrices.size3()?;
    // The QR decomposition is faster for more columns, but does not support 16 bits.
    if columns <= 2 || matches!(matrices.kind(), Kind::Half | Kind::BFloat16) {
        return gram_schmidt(matrices, columns, epsilon);
    }
    let r = Tensor::f_empty([batch, columns, columns], (matrices.kind(), matrices.device()))?;
    Tensor::f_linalg_qr_out(matrices, &r, matrices, "reduced").map(drop)
}

/// `_orthogonalize_gram_schmidt`
fn gram_schmidt(matrices: &Tensor, columns: i64, epsilon: f64) -> Result<(), TchError> {
    for index in 0..columns {
        let mut column = matrices.f_narrow(2, index, 1)?;
        let mut length = norm(&column, 2.0, &[1])?.f_unsqueeze(1)?;
        if epsilon != 0.0 {
            add_number_(&mut length, epsilon)?;
        }
        let _ = column.f_div_(&length)?;
        let rest = columns - index - 1;
        if rest > 0 {
            let mut rest = matrices.f_narrow(2, index + 1, rest)?;
            let along = column.f_mul(&rest)?.f_sum_dim_intlist([1].as_slice(), true, None)?;
            let _ = rest.f_sub_(&along.f_mul(&column)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    #[test]
    fn columns_have_length_1_and_stand_at_right_angles() {
        for columns in [1, 2, 4] {
            let numbers = Tensor::arange(2 * 7 * columns, (Kind::Float, Device::Cpu));
            let matrices = (numbers * 0.7 + 1.0).sin().view([2, 7, columns]);
            orthogonalize(&matrices, 0.0).unwrap();
            let products = matrices.transpose(1, 2).bmm(&matrices);
            let one = Tensor::eye(columns, (Kind::Float, Device::Cpu));
            let difference = (products - one).abs().max().double_value(&[]);
            // A few units in the last place of 1.
            assert!(difference < 1e-6, "{columns} columns: {difference}");
        }
    }

    #[test]
    fn an_epsilon_keeps_a_column_of_zeros_from_becoming_nan() {
        for (epsilon, nan) in [(0.0, true), (1e-8, false)] {
            let zeros = Tensor::zeros([1, 3, 1], (Kind::Float, Device::Cpu));
            orthogonalize(&zeros, epsilon).unwrap();
            assert_eq!(zeros.double_value(&[0, 0, 0]).is_nan(), nan);
        }
    }
}
