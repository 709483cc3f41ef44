//! The operations, with PyTorch's names.

use super::TensorList;
use crate::Result;
use c10d_sys::arithmetic::*;
use c10d_sys::foreach::{Operation::*, mul_tensor_};
use tch::Tensor;

/// Every operation has the errors of the engine ([`Error::Tensor`](crate::Error::Tensor)), and
/// [`Error::Argument`](crate::Error::Argument) for lists of different lengths.
impl TensorList {
    /// `-self`
    pub fn neg(&self) -> Result<Self> {
        self.results(Neg, &[], &[], |t, _| t.f_neg())
    }

    /// `self.sqrt()`
    pub fn sqrt(&self) -> Result<Self> {
        self.results(Sqrt, &[], &[], |t, _| t.f_sqrt())
    }

    /// `self.norm(p)`: the p-norm of each tensor; 0 for the largest of no elements, which PyTorch refuses to find.
    pub fn norm(&self, p: f64) -> Result<Self> {
        // A rank may have no elements of a gradient.
        let of_some = |t: &Tensor| match t.numel() {
            0 if p == f64::INFINITY => Tensor::f_zeros([1], (t.f_kind()?, t.device())),
            _ => Ok(t.shallow_clone()),
        };
        self.map(of_some)?.results(Norm, &[], &[p], |t, _| norm(t, p, &[]))
    }

    /// `self + number`
    pub fn add_number(&self, number: f64) -> Result<Self> {
        self.results(AddNumber, &[], &[number], |t, _| {
            let mut sum = copy(t)?;
            add_number_(&mut sum, number)?;
            Ok(sum)
        })
    }

    /// `self * numbers`, with one number for each tensor.
    pub fn mul_numbers(&self, numbers: &[f64]) -> Result<Self> {
        self.check_length(numbers.len())?;
        self.results(MulNumbers, &[], numbers, |t, i| {
            let mut product = copy(t)?;
            mul_number_(&mut product, numbers[i])?;
            Ok(product)
        })
    }

    /// `self + other * alpha`
    pub fn add_scaled(&self, other: &Self, alpha: f64) -> Result<Self> {
        self.results(AddScaled, &[other], &[alpha], |t, i| add_scaled(t, &other[i], alpha))
    }

    /// `self + value * a * b`
    pub fn addcmul(&self, a: &Self, b: &Self, value: f64) -> Result<Self> {
        self.results(AddCMul, &[a, b], &[value], |t, i| {
            let mut sum = copy(t)?;
            addcmul_(&mut sum, &a[i], &b[i], value)?;
            Ok(sum)
        })
    }

    /// `self.sqrt_()`
    pub fn sqrt_(&mut self) -> Result<()> {
        self.in_place(Sqrt, &[], &[], |t, _| t.f_sqrt_().map(drop))
    }

    /// `self.reciprocal_()`
    pub fn reciprocal_(&mut self) -> Result<()> {
        self.in_place(Reciprocal, &[], &[], |t, _| t.f_reciprocal_().map(drop))
    }

    /// `self.add_(number)`
    pub fn add_number_(&mut self, number: f64) -> Result<()> {
        self.in_place(AddNumber, &[], &[number], |t, _| add_number_(t, number))
    }

    /// `self.add_(numbers)`, with one number for each tensor.
    pub fn add_numbers_(&mut self, numbers: &[f64]) -> Result<()> {
        self.check_length(numbers.len())?;
        self.in_place(AddNumbers, &[], numbers, |t, i| add_number_(t, numbers[i]))
    }

    /// `self.mul_(number)`
    pub fn mul_number_(&mut self, number: f64) -> Result<()> {
        self.in_place(MulNumber, &[], &[number], |t, _| mul_number_(t, number))
    }

    /// `self.mul_(numbers)`, with one number for each tensor.
    pub fn mul_numbers_(&mut self, numbers: &[f64]) -> Result<()> {
        self.check_length(numbers.len())?;
        self.in_place(MulNumbers, &[], numbers, |t, i| mul_number_(t, numbers[i]))
    }

    /// `self.div_(numbers)`, with one number for each tensor.
    pub fn div_numbers_(&mut self, numbers: &[f64]) -> Result<()> {
        self.check_length(numbers.len())?;
        self.in_place(DivNumbers, &[], numbers, |t, i| div_number_(t, numbers[i]))
    }

    /// `self.clamp_min_(number)`
    pub fn clamp_min_(&mut self, number: f64) -> Result<()> {
        self.in_place(ClampMin, &[], &[number], |t, _| clamp_min_(t, number))
    }

    /// `self.clamp_max_(number)`
    pub fn clamp_max_(&mut self, number: f64) -> Result<()> {
        self.in_place(ClampMax, &[], &[number], |t, _| clamp_max_(t, number))
    }

    /// `self.mul_(factor)`, with one factor for all: a tensor of one element on their device.
    pub fn mul_tensor_(&mut self, factor: &Tensor) -> Result<()> {
        if self.foreach {
            return Ok(mul_tensor_(&mut self.tensors, factor)?);
        }
        self.iter_mut().try_for_each(|t| t.f_mul_(factor).map(drop))?;
        Ok(())
    }

    /// `self.mul_(other)`
    pub fn mul_(&mut self, other: &Self) -> Result<()> {
        self.in_place(Mul, &[other], &[], |t, i| t.f_mul_(&other[i]).map(drop))
    }

    /// `self.div_(other)`
    pub fn div_(&mut self, other: &Self) -> Result<()> {
        self.in_place(Div, &[other], &[], |t, i| t.f_div_(&other[i]).map(drop))
    }

    /// `torch.maximum(self, other, out=self)`
    pub fn maximum_(&mut self, other: &Self) -> Result<()> {
        self.in_place(Maximum, &[other], &[], |t, i| t.f_maximum_out(t, &other[i]).map(drop))
    }

    /// `self.add_(other, alpha=alpha)`
    pub fn add_scaled_(&mut self, other: &Self, alpha: f64) -> Result<()> {
        self.in_place(AddScaled, &[other], &[alpha], |t, i| add_scaled_(t, &other[i], alpha))
    }

    /// `self.lerp_(end, weight)`: moves each tensor towards `end` by this fraction of the way.
    pub fn lerp_(&mut self, end: &Self, weight: f64) -> Result<()> {
        self.in_place(Lerp, &[end], &[weight], |t, i| lerp_(t, &end[i], weight))
    }

    /// `self.addcmul_(a, b, value=value)`: adds `value * a * b`.
    pub fn addcmul_(&mut self, a: &Self, b: &Self, value: f64) -> Result<()> {
        self.in_place(AddCMul, &[a, b], &[value], |t, i| addcmul_(t, &a[i], &b[i], value))
    }

    /// `self.addcdiv_(a, b, value=value)`: adds `value * a / b`.
    pub fn addcdiv_(&mut self, a: &Self, b: &Self, value: f64) -> Result<()> {
        self.in_place(AddCDiv, &[a, b], &[value], |t, i| addcdiv_(t, &a[i], &b[i], value))
    }

    /// [`addcdiv_`](Self::addcdiv_) with one value for each tensor.
    pub fn addcdiv_numbers_(&mut self, a: &Self, b: &Self, values: &[f64]) -> Result<()> {
        self.check_length(values.len())?;
        self.in_place(AddCDivNumbers, &[a, b], values, |t, i| addcdiv_(t, &a[i], &b[i], values[i]))
    }
}
