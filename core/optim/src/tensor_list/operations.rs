//! The operations, with PyTorch's names.

use super::TensorList;
use crate::Result;
use c10d_sys::arithmetic::*;
use c10d_sys::foreach::{Operation, mul_tensor_};
use tch::Tensor;

/// Every operation has the errors of the engine ([`Error::Tensor`](crate::Error::Tensor)), and
/// [`Error::Argument`](crate::Error::Argument) for lists of different lengths.
impl TensorList {
    /// `-self`
    pub fn neg(&self) -> Result<Self> {
        self.results(Operation::Neg, &[], &[], |tensor, _| tensor.f_neg())
    }

    /// `self.sqrt()`
    pub fn sqrt(&self) -> Result<Self> {
        self.results(Operation::Sqrt, &[], &[], |tensor, _| tensor.f_sqrt())
    }

    /// `self.norm()`: the 2-norm of each tensor.
    pub fn norm(&self) -> Result<Self> {
        self.results(Operation::Norm, &[], &[], |tensor, _| tensor.f_norm())
    }

    /// `self + number`
    pub fn add_number(&self, number: f64) -> Result<Self> {
        self.results(Operation::AddNumber, &[], &[number], |tensor, _| {
            let mut sum = copy(tensor)?;
            add_number_(&mut sum, number)?;
            Ok(sum)
        })
    }

    /// `self * numbers`, with one number for each tensor.
    pub fn mul_numbers(&self, numbers: &[f64]) -> Result<Self> {
        self.check_length(numbers.len())?;
        self.results(Operation::MulNumbers, &[], numbers, |tensor, i| {
            let mut product = copy(tensor)?;
            mul_number_(&mut product, numbers[i])?;
            Ok(product)
        })
    }

    /// `self + other * alpha`
    pub fn add_scaled(&self, other: &Self, alpha: f64) -> Result<Self> {
        self.results(Operation::AddScaled, &[other], &[alpha], |tensor, i| {
            add_scaled(tensor, &other[i], alpha)
        })
    }

    /// `self + value * a * b`
    pub fn addcmul(&self, a: &Self, b: &Self, value: f64) -> Result<Self> {
        self.results(Operation::AddCMul, &[a, b], &[value], |tensor, i| {
            let mut sum = copy(tensor)?;
            addcmul_(&mut sum, &a[i], &b[i], value)?;
            Ok(sum)
        })
    }

    /// `self.sqrt_()`
    pub fn sqrt_(&mut self) -> Result<()> {
        self.in_place(Operation::Sqrt, &[], &[], |tensor, _| tensor.f_sqrt_().map(drop))
    }

    /// `self.reciprocal_()`
    pub fn reciprocal_(&mut self) -> Result<()> {
        self.in_place(Operation::Reciprocal, &[], &[], |tensor, _| tensor.f_reciprocal_().map(drop))
    }

    /// `self.add_(number)`
    pub fn add_number_(&mut self, number: f64) -> Result<()> {
        self.in_place(Operation::AddNumber, &[], &[number], |tensor, _| add_number_(tensor, number))
    }

    /// `self.add_(numbers)`, with one number for each tensor.
    pub fn add_numbers_(&mut self, numbers: &[f64]) -> Result<()> {
        self.check_length(numbers.len())?;
        self.in_place(Operation::AddNumbers, &[], numbers, |tensor, i| {
            add_number_(tensor, numbers[i])
        })
    }

    /// `self.mul_(number)`
    pub fn mul_number_(&mut self, number: f64) -> Result<()> {
        self.in_place(Operation::MulNumber, &[], &[number], |tensor, _| mul_number_(tensor, number))
    }

    /// `self.mul_(numbers)`, with one number for each tensor.
    pub fn mul_numbers_(&mut self, numbers: &[f64]) -> Result<()> {
        self.check_length(numbers.len())?;
        self.in_place(Operation::MulNumbers, &[], numbers, |tensor, i| {
            mul_number_(tensor, numbers[i])
        })
    }

    /// `self.div_(numbers)`, with one number for each tensor.
    pub fn div_numbers_(&mut self, numbers: &[f64]) -> Result<()> {
        self.check_length(numbers.len())?;
        self.in_place(Operation::DivNumbers, &[], numbers, |tensor, i| {
            div_number_(tensor, numbers[i])
        })
    }

    /// `self.clamp_min_(number)`
    pub fn clamp_min_(&mut self, number: f64) -> Result<()> {
        self.in_place(Operation::ClampMin, &[], &[number], |tensor, _| clamp_min_(tensor, number))
    }

    /// `self.clamp_max_(number)`
    pub fn clamp_max_(&mut self, number: f64) -> Result<()> {
        self.in_place(Operation::ClampMax, &[], &[number], |tensor, _| clamp_max_(tensor, number))
    }

    /// `self.mul_(factor)`, with one factor for all: a tensor of one element on their device.
    pub fn mul_tensor_(&mut self, factor: &Tensor) -> Result<()> {
        if self.foreach {
            return Ok(mul_tensor_(&mut self.tensors, factor)?);
        }
        self.iter_mut().try_for_each(|tensor| tensor.f_mul_(factor).map(drop))?;
        Ok(())
    }

    /// `self.mul_(other)`
    pub fn mul_(&mut self, other: &Self) -> Result<()> {
        self.in_place(Operation::Mul, &[other], &[], |tensor, i| tensor.f_mul_(&other[i]).map(drop))
    }

    /// `self.div_(other)`
    pub fn div_(&mut self, other: &Self) -> Result<()> {
        self.in_place(Operation::Div, &[other], &[], |tensor, i| tensor.f_div_(&other[i]).map(drop))
    }

    /// `torch.maximum(self, other, out=self)`
    pub fn maximum_(&mut self, other: &Self) -> Result<()> {
        self.in_place(Operation::Maximum, &[other], &[], |tensor, i| {
            tensor.f_maximum_out(tensor, &other[i]).map(drop)
        })
    }

    /// `self.add_(other, alpha=alpha)`
    pub fn add_scaled_(&mut self, other: &Self, alpha: f64) -> Result<()> {
        self.in_place(Operation::AddScaled, &[other], &[alpha], |tensor, i| {
            add_scaled_(tensor, &other[i], alpha)
        })
    }

    /// `self.lerp_(end, weight)`: moves each tensor towards `end` by this fraction of the way.
    pub fn lerp_(&mut self, end: &Self, weight: f64) -> Result<()> {
        self.in_place(Operation::Lerp, &[end], &[weight], |tensor, i| {
            lerp_(tensor, &end[i], weight)
        })
    }

    /// `self.addcmul_(a, b, value=value)`: adds `value * a * b`.
    pub fn addcmul_(&mut self, a: &Self, b: &Self, value: f64) -> Result<()> {
        self.in_place(Operation::AddCMul, &[a, b], &[value], |tensor, i| {
            addcmul_(tensor, &a[i], &b[i], value)
        })
    }

    /// `self.addcdiv_(a, b, value=value)`: adds `value * a / b`.
    pub fn addcdiv_(&mut self, a: &Self, b: &Self, value: f64) -> Result<()> {
        self.in_place(Operation::AddCDiv, &[a, b], &[value], |tensor, i| {
            addcdiv_(tensor, &a[i], &b[i], value)
        })
    }

    /// [`addcdiv_`](Self::addcdiv_) with one value for each tensor.
    pub fn addcdiv_numbers_(&mut self, a: &Self, b: &Self, values: &[f64]) -> Result<()> {
        self.check_length(values.len())?;
        self.in_place(Operation::AddCDivNumbers, &[a, b], values, |tensor, i| {
            addcdiv_(tensor, &a[i], &b[i], values[i])
        })
    }
}
