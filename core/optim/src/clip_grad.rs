//! Gradient clipping: `torch.nn.utils.clip_grad`.

use super::check::check_not_negative;
use super::tensor_list::{TensorList, by_device_and_kind};
use crate::Result;
use c10d_sys::arithmetic::{add_number_, clamp_max_, mul_number_};
use tch::{Device, Tensor, no_grad};

/// Scales all gradients by one factor so that their joint norm is at most `max_norm`; smaller gradients are unchanged.
/// Returns the norm before scaling. `torch.nn.utils.clip_grad_norm_` with its default, the 2-norm, with the same bits
/// on the CPU and the same `_foreach_*` operations on GPUs.
///
/// Call this between the backward pass and the optimizer's step, with the parameters of all groups. Their order counts
/// in the last bits: for Python's `model.parameters()`, use the model's (`vs.trainable_variables()`), because an
/// optimizer's is that of its groups. Parameters without a gradient are skipped. Returning a number waits for a GPU.
/// Pascanu et al., "On the difficulty of training recurrent neural networks" (2013).
///
/// ```
/// use tch::{Device, Kind, nn::VarStore};
/// use tch_parallel::optim::{Optimizer, Sgd, SgdOptions, clip_grad_norm_};
///
/// let vs = VarStore::new(Device::Cpu);
/// let weight = vs.root().ones("weight", &[4]);
/// let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
/// (&weight * 3.0).sum(Kind::Float).backward();
/// let norm = clip_grad_norm_(&optimizer.parameters(), 1.0)?;
/// assert_eq!(norm, 6.0); // of 3, 3, 3 and 3
/// optimizer.step()?;
/// assert!((weight.double_value(&[0]) - 0.5).abs() < 1e-6); // 1 - 3 / 6
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Several ranks
///
/// After `DistributedDataParallel::backward` all ranks have the same gradients, so each computes
/// the same norm and scales by the same factor without an exchange. Within `no_sync` gradients
/// differ: clip once, after the pass that averages them.
///
/// # With a `GradScaler`
///
/// After the backward pass, gradients are still scaled. Call `GradScaler::unscale_` first;
/// otherwise `max_norm` is compared with a norm that is thousands of times too large.
///
/// # A norm that is not finite
///
/// This is not an error, as in PyTorch without `error_if_nonfinite`, but the gradients are then useless. If the norm is
/// NaN, all of them are NaN. If it is infinite and `max_norm` is not, finite elements become 0 and the others NaN. So
/// check that the norm [is finite](f64::is_finite) before making the step. `GradScaler::step` skips the step if a
/// gradient was not finite in `unscale_`.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) if `max_norm` is negative or NaN;
/// [`Error::Tensor`](crate::Error::Tensor) if an operation fails.
pub fn clip_grad_norm_(parameters: &[Tensor], max_norm: f64) -> Result<f64> {
    clip_grad_norm_of_parts(parameters, max_norm, Ok)
}

/// [`clip_grad_norm_`] for gradients that are only parts of larger ones, on other ranks for instance. `norms_of_wholes`
/// turns the norms of the parts into those of the whole gradients; both are `[parameters]`.
pub fn clip_grad_norm_of_parts(
    parameters: &[Tensor],
    max_norm: f64,
    norms_of_wholes: impl FnOnce(Tensor) -> Result<Tensor>,
) -> Result<f64> {
    check_not_negative(&[("max_norm", max_norm)])?;
    no_grad(|| scale(gradients(parameters), max_norm, norms_of_wholes))
}

/// Clamps every element of the gradients to the range from `-clip_value` to `clip_value`.
/// `torch.nn.utils.clip_grad_value_`
///
/// Unlike [`clip_grad_norm_`], this changes the gradients' direction. Its remarks on several ranks and on a
/// `GradScaler` apply here too. An infinite element becomes `clip_value`, NaN stays NaN.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::optim::{Optimizer, Sgd, SgdOptions, clip_grad_value_};
///
/// let vs = VarStore::new(Device::Cpu);
/// let weight = vs.root().zeros("weight", &[3]);
/// let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
/// (&weight * Tensor::from_slice(&[3f32, -0.25, -7.0])).sum(Kind::Float).backward();
/// clip_grad_value_(&optimizer.parameters(), 0.5)?;
/// optimizer.step()?;
/// assert_eq!(weight, Tensor::from_slice(&[-0.5f32, 0.25, 0.5]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) if `clip_value` is negative or NaN;
/// [`Error::Tensor`](crate::Error::Tensor) if an operation fails.
pub fn clip_grad_value_(parameters: &[Tensor], clip_value: f64) -> Result<()> {
    check_not_negative(&[("clip_value", clip_value)])?;
    let clip = |mut list: TensorList| {
        list.clamp_min_(-clip_value)?;
        list.clamp_max_(clip_value)
    };
    no_grad(|| lists(gradients(parameters)).into_iter().try_for_each(clip))
}

/// The gradients of the parameters that have one.
fn gradients(parameters: &[Tensor]) -> Vec<Tensor> {
    parameters.iter().map(Tensor::grad).filter(Tensor::defined).collect()
}

/// The operations of PyTorch's `_get_total_norm` and `_clip_grads_with_norm_`, in their order.
fn scale(
    gradients: Vec<Tensor>,
    max_norm: f64,
    norms_of_wholes: impl FnOnce(Tensor) -> Result<Tensor>,
) -> Result<f64> {
    let Some(device) = gradients.first().map(Tensor::device) else {
        return Ok(0.0);
    };
    let mut lists = lists(gradients);
    let mut norms = Vec::new();
    for list in &lists {
        for norm in list.norm()?.iter() {
            norms.push(norm.f_to(device)?);
        }
    }
    let total_norm = norms_of_wholes(Tensor::f_stack(&norms, 0)?)?.f_norm()?;
    // Python's max_norm / (total_norm + 1e-6), which PyTorch also computes as a product.
    let mut factor = total_norm.f_detach_copy()?;
    add_number_(&mut factor, 1e-6)?;
    let _ = factor.f_reciprocal_()?;
    mul_number_(&mut factor, max_norm)?;
    clamp_max_(&mut factor, 1.0)?;
    for list in &mut lists {
        // Even by 1: checking the factor would wait for a GPU.
        let factor = factor.f_to(list[0].device())?;
        list.mul_tensor_(&factor)?;
    }
    Ok(total_norm.f_double_value(&[])?)
}

/// The gradients of each kind on each GPU together; on the CPU, in their order.
fn lists(gradients: Vec<Tensor>) -> Vec<TensorList> {
    if gradients.iter().all(|gradient| gradient.device() == Device::Cpu) {
        return vec![gradients.into()];
    }
    by_device_and_kind(gradients, |gradient| gradient).into_iter().map(TensorList::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    /// A parameter with this gradient.
    fn parameter(gradient: &[f32]) -> Tensor {
        let gradient = Tensor::from_slice(gradient);
        let parameter = gradient.zeros_like().set_requires_grad(true);
        (&parameter * gradient).sum(Kind::Float).backward();
        parameter
    }

    fn gradient(parameter: &Tensor) -> Vec<f32> {
        Vec::try_from(parameter.grad()).unwrap()
    }

    #[test]
    fn gradients_are_scaled_by_the_norm_of_all_together() {
        let parameters = [parameter(&[2.0, 3.0]), parameter(&[6.0])];
        assert_eq!(clip_grad_norm_(&parameters, 3.5).unwrap(), 7.0);
        let [first, second] = parameters.each_ref().map(gradient);
        for (found, expected) in first.into_iter().chain(second).zip([1.0, 1.5, 3.0]) {
            approx::assert_relative_eq!(found, expected, max_relative = 1e-6);
        }
    }

    #[test]
    fn gradients_that_are_short_enough_stay_as_they_are() {
        for max_norm in [5.1, f64::INFINITY] {
            let parameter = parameter(&[3.0, 4.0]);
            assert_eq!(clip_grad_norm_(&[parameter.shallow_clone()], max_norm).unwrap(), 5.0);
            assert_eq!(gradient(&parameter), [3.0, 4.0]);
        }
    }

    #[test]
    fn a_parameter_without_a_gradient_is_skipped() {
        let idle = Tensor::zeros([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        assert_eq!(clip_grad_norm_(&[idle.shallow_clone()], 1.0).unwrap(), 0.0);
        let parameters = [idle, parameter(&[3.0, 4.0])];
        assert_eq!(clip_grad_norm_(&parameters, 0.0).unwrap(), 5.0);
        assert_eq!(gradient(&parameters[1]), [0.0, 0.0]);
        clip_grad_value_(&parameters, 1.0).unwrap();
        assert!(!parameters[0].grad().defined());
    }

    #[test]
    fn a_norm_that_is_not_finite_is_returned() {
        let infinite = parameter(&[f32::INFINITY, 1.0]);
        assert_eq!(clip_grad_norm_(&[infinite.shallow_clone()], 1.0).unwrap(), f64::INFINITY);
        let [overflown, finite] = gradient(&infinite)[..] else { panic!("two numbers") };
        assert!(overflown.is_nan() && finite == 0.0);

        let nan = parameter(&[f32::NAN, 1.0]);
        assert!(clip_grad_norm_(&[nan.shallow_clone()], 1.0).unwrap().is_nan());
        assert!(gradient(&nan).into_iter().all(f32::is_nan));
    }

    #[test]
    fn values_are_clipped_one_by_one() {
        let parameter = parameter(&[-9.0, -1.0, 0.5, f32::INFINITY]);
        clip_grad_value_(&[parameter.shallow_clone()], 2.0).unwrap();
        assert_eq!(gradient(&parameter), [-2.0, -1.0, 0.5, 2.0]);
    }

    #[test]
    fn a_gradient_that_cannot_be_clamped_is_an_error_and_no_panic() {
        let weight = Tensor::zeros([4, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let (padding_idx, scale_grad_by_freq, sparse) = (-1, false, true);
        let rows = Tensor::from_slice(&[1i64, 3]);
        Tensor::embedding(&weight, &rows, padding_idx, scale_grad_by_freq, sparse)
            .sum(Kind::Float)
            .backward();
        let error = clip_grad_value_(&[weight], 1.0).unwrap_err().to_string();
        assert!(error.contains("Sparse"), "{error}");
    }

    #[test]
    fn limits_that_are_negative_or_no_numbers_are_refused() {
        let parameter = parameter(&[3.0, 4.0]);
        let parameters = [parameter.shallow_clone()];
        let error = clip_grad_norm_(&parameters, -1.0).unwrap_err().to_string();
        assert_eq!(error, "max_norm is -1, but must be a number not below 0");
        let error = clip_grad_value_(&parameters, f64::NAN).unwrap_err().to_string();
        assert_eq!(error, "clip_value is NaN, but must be a number not below 0");
        assert_eq!(gradient(&parameter), [3.0, 4.0]);
    }
}
