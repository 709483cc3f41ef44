//! Gradient clipping: `torch.nn.utils.clip_grad`.

use super::check::{check, check_not_negative};
use super::tensor_list::{TensorList, by_device_and_kind};
use crate::Result;
use c10d_sys::arithmetic::{add_number_, clamp_max_, mul_number_, norm};
use tch::{Device, Kind, Tensor, no_grad};
use tch_parallel_base::options;

options! {
    /// PyTorch's arguments of `clip_grad_norm_`, with its defaults. A plain number stands for `max_norm` alone.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct ClipGradNormOptions {
        /// The largest norm of all gradients together.
        pub max_norm: f64,
        /// The `p` of the p-norm; `f64::INFINITY` takes the largest absolute value.
        pub norm_type: f64 = 2.0,
        /// Whether an infinite or NaN norm is an error. The gradients are then unchanged.
        pub error_if_nonfinite: bool = false,
    }
    /// With PyTorch's defaults: the 2-norm, which may be infinite or NaN.
    pub fn new(max_norm: f64);
}

impl From<f64> for ClipGradNormOptions {
    fn from(max_norm: f64) -> Self {
        ClipGradNormOptions::new(max_norm)
    }
}

/// Scales all gradients by one factor so that their joint norm is at most `max_norm`, which may be given without the
/// other options; smaller gradients are unchanged. Returns the norm before scaling. `torch.nn.utils.clip_grad_norm_`,
/// with the same bits on the CPU if all gradients are of one kind, and the same `_foreach_*` operations on GPUs.
///
/// Call this between the backward pass and the optimizer's step, with the parameters of all groups. Their order counts
/// in the last bits: for Python's `model.parameters()`, use the model's (`vs.trainable_variables()`), because an
/// optimizer's is that of its groups. Parameters without a gradient are skipped. Returning a number waits for a GPU.
/// Pascanu et al., "On the difficulty of training recurrent neural networks" (2013).
///
/// ```
/// use tch::{Device, Kind, nn::VarStore};
/// use tch_parallel::optim::{ClipGradNormOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_};
///
/// let vs = VarStore::new(Device::Cpu);
/// let weight = vs.root().ones("weight", &[4]);
/// let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
/// (&weight * 3.0).sum(Kind::Float).backward();
/// let norm = clip_grad_norm_(&optimizer.parameters(), 1.0)?;
/// assert_eq!(norm, 6.0); // of 3, 3, 3 and 3
/// optimizer.step()?;
/// assert!((weight.double_value(&[0]) - 0.5).abs() < 1e-6); // 1 - 3 / 6
///
/// // By the largest element, which is 3 / 6.
/// let largest = ClipGradNormOptions { norm_type: f64::INFINITY, ..ClipGradNormOptions::new(0.1) };
/// assert!((clip_grad_norm_(&optimizer.parameters(), largest)? - 0.5).abs() < 1e-6);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Several ranks
///
/// After `DistributedDataParallel::backward` all ranks have the same gradients, so each computes the same norm and
/// factor without an exchange. Within `no_sync` gradients differ: clip once, after the pass that averages them.
///
/// # With a `GradScaler`
///
/// After the backward pass, gradients are still scaled. Call `GradScaler::unscale_` first;
/// otherwise `max_norm` is compared with a norm that is thousands of times too large.
///
/// # A norm that is not finite
///
/// With `error_if_nonfinite` this is an error. Without it, the gradients are then useless: if the norm is NaN, all of
/// them are NaN; if it is infinite and `max_norm` is not, finite elements become 0 and the others NaN. So set the
/// option, or check that the norm [is finite](f64::is_finite) before making the step. `GradScaler::step` skips the step
/// if a gradient was not finite in `unscale_`.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) if `max_norm` is negative or NaN, and for a norm that is not finite with
/// `error_if_nonfinite`; [`Error::Tensor`](crate::Error::Tensor) if an operation fails.
pub fn clip_grad_norm_(
    parameters: &[Tensor],
    options: impl Into<ClipGradNormOptions>,
) -> Result<f64> {
    clip_grad_norm_of_parts(parameters, options, Ok)
}

/// [`clip_grad_norm_`] for gradients that are only parts of larger ones, on other ranks for instance. `norms_of_wholes`
/// turns the norms of the parts into those of the whole gradients; both are `[parameters]`.
pub fn clip_grad_norm_of_parts(
    parameters: &[Tensor],
    options: impl Into<ClipGradNormOptions>,
    norms_of_wholes: impl FnOnce(Tensor) -> Result<Tensor>,
) -> Result<f64> {
    let options = options.into();
    check_not_negative(&[("max_norm", options.max_norm)])?;
    let ClipGradNormOptions { max_norm, norm_type, error_if_nonfinite } = options;
    let lists = lists(gradients(parameters));
    let Some(total) = no_grad(|| total_norm(&lists, norm_type, norms_of_wholes))? else {
        return Ok(0.0);
    };
    if error_if_nonfinite {
        let norm = total.f_double_value(&[])?;
        check(norm.is_finite(), "the norm of the gradients", norm, "finite; skip this step")?;
    }
    no_grad(|| scale(lists, max_norm, &total))?;
    Ok(total.f_double_value(&[])?)
}

/// Scales all gradients so that their joint norm, which is `total_norm`, becomes at most `max_norm`. Unlike that of
/// [`clip_grad_norm_`], the factor has at least 32 bits. `torch.nn.utils.clip_grads_with_norm_`
///
/// ```
/// use tch::{Kind, Tensor};
/// use tch_parallel::optim::{clip_grads_with_norm_, get_total_norm};
///
/// let weight = Tensor::from_slice(&[3f32, 4.0]).set_requires_grad(true);
/// weight.square().sum(Kind::Float).backward();
/// let norm = get_total_norm(&[weight.grad()], 2.0)?; // of 6 and 8
/// clip_grads_with_norm_(&[weight], 1.0, norm)?;
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub fn clip_grads_with_norm_(parameters: &[Tensor], max_norm: f64, total_norm: f64) -> Result<()> {
    check_not_negative(&[("max_norm", max_norm)])?;
    let lists = lists(gradients(parameters));
    let Some(first) = lists.first().and_then(|list| list.first()) else { return Ok(()) };
    // A 16-bit kind might round the norm, or make it infinite.
    let kind = if first.f_kind()? == Kind::Double { Kind::Double } else { Kind::Float };
    let total_norm = Tensor::from(total_norm).f_to_kind(kind)?;
    no_grad(|| scale(lists, max_norm, &total_norm))
}

/// The norm of all these tensors together, gradients for instance. `torch.nn.utils.get_total_norm`
///
/// For gradients of shards, this is the norm of this rank's rows only: call [`clip_grad_norm_`] with an infinite
/// `max_norm` instead, which leaves finite gradients unchanged.
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::optim::get_total_norm;
///
/// let tensors = [Tensor::from_slice(&[3f32, -2.0]), Tensor::from_slice(&[6f32])];
/// assert_eq!(get_total_norm(&tensors, 2.0)?, 7.0);
/// assert_eq!(get_total_norm(&tensors, 1.0)?, 11.0);
/// assert_eq!(get_total_norm(&tensors, f64::INFINITY)?, 6.0);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Tensor`](crate::Error::Tensor) if an operation fails.
pub fn get_total_norm(tensors: &[Tensor], norm_type: f64) -> Result<f64> {
    let lists = lists(tensors.iter().map(Tensor::shallow_clone).collect());
    let total_norm = no_grad(|| total_norm(&lists, norm_type, Ok))?;
    total_norm.map_or(Ok(0.0), |norm| Ok(norm.f_double_value(&[])?))
}

/// Clamps the gradients' elements to the range from `-clip_value` to `clip_value`. `torch.nn.utils.clip_grad_value_`
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

fn gradients(parameters: &[Tensor]) -> Vec<Tensor> {
    parameters.iter().map(Tensor::grad).filter(Tensor::defined).collect()
}

/// The operations of PyTorch's `_get_total_norm`. `None` without a tensor.
fn total_norm(
    lists: &[TensorList],
    norm_type: f64,
    norms_of_wholes: impl FnOnce(Tensor) -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    let mut norms: Vec<Tensor> = Vec::new();
    for list in lists {
        for norm in list.norm(norm_type)?.iter() {
            norms.push(norm.f_to(norms.first().unwrap_or(norm).device())?);
        }
    }
    if norms.is_empty() {
        return Ok(None);
    }
    let wholes = norms_of_wholes(Tensor::f_stack(&norms, 0)?)?;
    Ok(Some(norm(&wholes, norm_type, &[])?))
}

/// The operations of PyTorch's `_clip_grads_with_norm_`, in their order.
fn scale(lists: Vec<TensorList>, max_norm: f64, total_norm: &Tensor) -> Result<()> {
    // Python's max_norm / (total_norm + 1e-6), which PyTorch also computes as a product.
    let mut factor = total_norm.f_detach_copy()?;
    add_number_(&mut factor, 1e-6)?;
    let _ = factor.f_reciprocal_()?;
    mul_number_(&mut factor, max_norm)?;
    clamp_max_(&mut factor, 1.0)?;
    for mut list in lists {
        // Even by 1: checking the factor would wait for a GPU.
        list.mul_tensor_(&factor.f_to(list[0].device())?)?;
    }
    Ok(())
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
    use crate::sparse_adam::tests::embedding;

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
    fn the_norm_may_be_computed_before() {
        let [first, second] = [(); 2].map(|()| [parameter(&[0.1, 0.7]), parameter(&[3.3])]);
        let norm = clip_grad_norm_(&first, 1.0).unwrap();
        assert_eq!(get_total_norm(&gradients(&second), 2.0).unwrap(), norm);
        clip_grads_with_norm_(&second, 1.0, norm).unwrap();
        assert_eq!(second.map(|it| gradient(&it)), first.map(|it| gradient(&it)));
        clip_grads_with_norm_(&[], 1.0, norm).unwrap();
    }

    #[test]
    fn a_norm_that_is_not_finite_is_refused_or_returned() {
        let cases = [(f32::NEG_INFINITY, f64::INFINITY, 0.0), (f32::NAN, f64::NAN, f32::NAN)];
        for (number, norm, rest) in cases {
            let parameters = [parameter(&[number, 1.0])];
            let strict = ClipGradNormOptions { error_if_nonfinite: true, ..1f64.into() };
            let error = clip_grad_norm_(&parameters, strict).unwrap_err().to_string();
            let expected = "but must be finite; skip this step";
            assert_eq!(error, format!("the norm of the gradients is {norm}, {expected}"));
            assert_eq!(gradient(&parameters[0])[1], 1.0);
            assert_eq!(clip_grad_norm_(&parameters, 1.0).unwrap().to_string(), norm.to_string());
            assert_eq!(format!("{:?}", gradient(&parameters[0])), format!("[NaN, {rest:?}]"));
        }
    }

    #[test]
    fn a_gradient_that_cannot_be_clamped_is_an_error_and_no_panic() {
        let parameters = embedding().trainable_variables();
        let error = clip_grad_value_(&parameters, 1.0).unwrap_err().to_string();
        assert!(error.contains("Sparse"), "{error}");
    }

    #[test]
    fn limits_that_are_negative_or_no_numbers_are_refused() {
        let parameters = [parameter(&[3.0, 4.0])];
        let error = clip_grad_norm_(&parameters, -1.0).unwrap_err().to_string();
        assert_eq!(error, "max_norm is -1, but must be a number not below 0");
        let error = clip_grad_value_(&parameters, f64::NAN).unwrap_err().to_string();
        assert_eq!(error, "clip_value is NaN, but must be a number not below 0");
        assert_eq!(gradient(&parameters[0]), [3.0, 4.0]);
    }
}
