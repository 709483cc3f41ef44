//! Arithmetic with numbers, which returns an error where tch's panics, and copies that do.
//!
//! A function of tch that takes a `Scalar` drops it before the error of the call is read. The drop
//! finds the error and panics with it, even in the functions that return a `Result`.

use crate::{Error, arguments::pointer, error::check, error::created_tensor, ffi};
use tch::{TchError, Tensor};

/// The operations in place with one number, and PyTorch's name of each.
macro_rules! with_number {
    ($($name:ident = $operation:ident, $pytorchs:literal;)*) => {$(
        #[doc = concat!("`tensor.", $pytorchs, "(number)`")]
        pub fn $name(tensor: &mut Tensor, number: f64) -> Result<(), TchError> {
            let tensor = &*tensor;
            in_place(tensor, Operation::$operation, [tensor; 2], number)
        }
    )*};
}

with_number! {
    add_number_ = Add, "add_";
    mul_number_ = Mul, "mul_";
    div_number_ = Div, "div_";
    clamp_min_ = ClampMin, "clamp_min_";
    clamp_max_ = ClampMax, "clamp_max_";
    pow_number_ = Pow, "pow_";
}

/// `tensor.lerp_(end, weight)`: moves `tensor` towards `end` by this fraction of the way.
pub fn lerp_(tensor: &mut Tensor, end: &Tensor, weight: f64) -> Result<(), TchError> {
    in_place(tensor, Operation::Lerp, [end; 2], weight)
}

/// `tensor.add(other, alpha=alpha)`. Where the kernel uses a fused multiply-add, each element is
/// rounded once, unlike in `tensor + other * alpha`, which rounds twice.
pub fn add_scaled(tensor: &Tensor, other: &Tensor, alpha: f64) -> Result<Tensor, TchError> {
    let (tensor, other) = (pointer(tensor), pointer(other));
    created_tensor(|out| ffi::c10d_add_scaled(tensor, other, alpha, out)).map_err(as_tchs)
}

/// `tensor.add_(other, alpha=alpha)`; rounds like [`add_scaled`].
pub fn add_scaled_(tensor: &mut Tensor, other: &Tensor, alpha: f64) -> Result<(), TchError> {
    in_place(tensor, Operation::AddScaled, [other; 2], alpha)
}

/// `tensor.add_(other * number)`: each element is rounded twice, unlike with [`add_scaled_`].
pub fn add_product_(tensor: &mut Tensor, other: &Tensor, number: f64) -> Result<(), TchError> {
    in_place(tensor, Operation::AddProduct, [other; 2], number)
}

/// `tensor.addcmul_(a, b, value=value)`: adds `value * a * b`. tch's function has no `value`.
pub fn addcmul_(tensor: &mut Tensor, a: &Tensor, b: &Tensor, value: f64) -> Result<(), TchError> {
    in_place(tensor, Operation::AddCMul, [a, b], value)
}

/// `tensor.addcdiv_(a, b, value=value)`: adds `value * a / b`. tch's function has no `value`.
pub fn addcdiv_(tensor: &mut Tensor, a: &Tensor, b: &Tensor, value: f64) -> Result<(), TchError> {
    in_place(tensor, Operation::AddCDiv, [a, b], value)
}

/// `tensor.detach().clone()`, sparse tensors too. tch's `copy` panics.
pub fn copy(tensor: &Tensor) -> Result<Tensor, TchError> {
    created_tensor(|out| ffi::c10d_copy(pointer(tensor), out)).map_err(as_tchs)
}

/// `tensor.norm(p, dims)`: over all dimensions if none is given.
pub fn norm(tensor: &Tensor, p: f64, dims: &[i64]) -> Result<Tensor, TchError> {
    created_tensor(|out| ffi::c10d_norm(pointer(tensor), p, dims.into(), out)).map_err(as_tchs)
}

/// As numbered in c10d.h.
#[repr(u8)]
enum Operation {
    Add,
    Mul,
    Div,
    ClampMin,
    ClampMax,
    Pow,
    Lerp,
    AddScaled,
    AddCMul,
    AddCDiv,
    AddProduct,
}

/// An operation of fewer tensors ignores `b`, or both.
fn in_place(
    tensor: &Tensor,
    operation: Operation,
    [a, b]: [&Tensor; 2],
    number: f64,
) -> Result<(), TchError> {
    let (tensor, a, b) = (pointer(tensor), pointer(a), pointer(b));
    check(ffi::c10d_arithmetic(tensor, operation as u8, a, b, number)).map_err(as_tchs)
}

pub(crate) fn as_tchs(error: Error) -> TchError {
    TchError::Torch(error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::version;
    use tch::Kind;

    type WithNumber = fn(&mut Tensor, f64) -> Result<(), TchError>;

    const ALL: [(WithNumber, f64); 6] = [
        (add_number_, 3.5),
        (mul_number_, 3.0),
        (div_number_, 0.5),
        (clamp_min_, 3.0),
        (clamp_max_, 3.0),
        (pow_number_, 2.0),
    ];

    #[test]
    fn each_does_what_its_name_says() {
        for (start, expected) in
            [(2f32, [5.5, 6.0, 4.0, 3.0, 2.0, 4.0]), (4.0, [7.5, 12.0, 8.0, 4.0, 3.0, 16.0])]
        {
            for ((operation, number), expected) in ALL.into_iter().zip(expected) {
                let mut tensor = Tensor::from_slice(&[start]);
                operation(&mut tensor, number).unwrap();
                assert_eq!(tensor.double_value(&[0]), expected);
            }
        }
        let mut tensor = Tensor::from_slice(&[1f32]);
        lerp_(&mut tensor, &Tensor::from_slice(&[5f32]), 0.75).unwrap();
        assert_eq!(tensor, Tensor::from_slice(&[4f32]));
        let columns = Tensor::from_slice2(&[[3f32, 0.0], [4.0, 2.0]]);
        assert_eq!(norm(&columns, 2.0, &[0]).unwrap(), Tensor::from_slice(&[5f32, 2.0]));
        assert_eq!(norm(&columns, 1.0, &[]).unwrap().double_value(&[]), 9.0);
    }

    #[test]
    fn a_number_keeps_its_precision_beside_16_bits_as_in_python() {
        let mut tensor = Tensor::from_slice(&[3f32]).to_kind(Kind::BFloat16);
        mul_number_(&mut tensor, 0.9).unwrap();
        // 2.7, rounded once. With 0.9 rounded to bfloat16, it would be 2.6875.
        assert_eq!(tensor.double_value(&[0]), 2.703125);
    }

    /// By default, compilers for ARM fuse the two into one rounding; those for plain x86-64 cannot.
    #[test]
    fn a_product_is_rounded_before_it_is_added() {
        let numbers = Tensor::arange(6, (Kind::Float, tch::Device::Cpu)).exp().view([2, 3]);
        let turned = numbers.transpose(0, 1).contiguous().transpose(0, 1);
        let short = |tensor: &Tensor| tensor.to_kind(Kind::BFloat16);
        for (mut tensor, other) in [
            (numbers.copy(), numbers.sin()),
            (turned, numbers.sin()),
            (numbers.sin(), numbers.get(0).expand([2, 3], false)),
            (short(&numbers), short(&numbers.sin())),
        ] {
            let mut product = other.copy();
            mul_number_(&mut product, 0.7).unwrap();
            let (before, expected) = (version(&tensor), &tensor + product);
            add_product_(&mut tensor, &other, 0.7).unwrap();
            assert_eq!(tensor, expected);
            assert!(version(&tensor) > before, "autograd notices");
        }
    }

    #[test]
    fn a_failure_is_an_error_and_no_panic() {
        for (operation, _) in ALL {
            let error = operation(&mut Tensor::from_slice(&[1i64]), 0.5).unwrap_err();
            assert!(error.to_string().contains("can't be cast"), "{error}");
        }
        let (mut pair, three) = (Tensor::from_slice(&[0f32; 2]), Tensor::from_slice(&[0f32; 3]));
        assert!(lerp_(&mut pair, &three, 0.5).unwrap_err().to_string().contains("size"));
        assert!(add_scaled(&pair, &three, 0.5).unwrap_err().to_string().contains("size"));
        assert!(add_product_(&mut pair, &three, 0.5).unwrap_err().to_string().contains("size"));
        for operation in [addcmul_, addcdiv_] {
            let error = operation(&mut pair, &three, &three, 0.5).unwrap_err();
            assert!(error.to_string().contains("size"), "{error}");
        }
        assert!(copy(&Tensor::new()).unwrap_err().to_string().contains("ndefined"));
        assert!(norm(&pair, 2.0, &[7]).unwrap_err().to_string().contains("range"));
    }
}
