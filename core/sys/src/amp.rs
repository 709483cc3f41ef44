//! Mixed precision in libtorch: `torch.autocast`, and the check of scaled gradients.

use crate::{Result, arguments::pointer, arguments::pointers, error::check, ffi};
use std::marker::PhantomData;
use tch::Tensor;

/// The kinds that autocast supports, with their numbers in `c10::ScalarType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum AutocastKind {
    /// `torch.float16`
    Half = 5,
    /// `torch.bfloat16`
    BFloat16 = 15,
}

/// Runs `body` with autocast set on this thread: `with torch.autocast(device_type, dtype=kind)`, or
/// `enabled=False` for `None`. Restores the previous settings afterwards, even if `body` panics.
pub fn autocast<R>(cuda: bool, kind: Option<AutocastKind>, body: impl FnOnce() -> R) -> Result<R> {
    let mut previous = ffi::Autocast { enabled: false, kind: 0 };
    check(ffi::c10d_autocast_enter(cuda, kind.map_or(-1, |kind| kind as i32), &mut previous))?;
    let _entered = Entered { cuda, previous, _on_this_thread: PhantomData };
    Ok(body())
}

/// Restores the previous settings when it is dropped.
struct Entered {
    cuda: bool,
    previous: ffi::Autocast,
    /// The settings are per thread.
    _on_this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // It only restores what has been read, so it cannot fail.
        let _ = check(ffi::c10d_autocast_leave(self.cuda, &self.previous));
    }
}

/// `torch.is_autocast_enabled()`, which asks for CUDA, of this thread.
pub fn cuda_autocast_enabled() -> bool {
    ffi::c10d_cuda_autocast_enabled()
}

/// Multiplies the gradients, all of one kind and on one device, by `inv_scale`, and sets `found_inf` to 1 if an element
/// is infinite or NaN: `torch._amp_foreach_non_finite_check_and_unscale_`.
pub fn non_finite_check_and_unscale_(
    gradients: &mut [Tensor],
    found_inf: &mut Tensor,
    inv_scale: &Tensor,
) -> Result<()> {
    let (found_inf, inv_scale) = (pointer(found_inf), pointer(inv_scale));
    check(ffi::c10d_non_finite_check_and_unscale(pointers(gradients).list(), found_inf, inv_scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;
    use tch::{Kind, kind::FLOAT_CPU};

    /// The kind of a matrix product of floats shows the autocast setting.
    fn product() -> Kind {
        Tensor::ones([2, 2], FLOAT_CPU).matmul(&Tensor::ones([2, 2], FLOAT_CPU)).kind()
    }

    #[test]
    fn a_panic_leaves_it_as_before() {
        let panic = catch_unwind(|| autocast(false, Some(AutocastKind::Half), || panic!("inside")));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
        assert_eq!(product(), Kind::Float);
    }

    #[test]
    fn a_weight_that_was_cast_is_cast_anew_in_the_next_block() {
        let mut weight = Tensor::ones([1, 1], FLOAT_CPU).set_requires_grad(true);
        let times_weight = |weight: &Tensor| {
            let x = Tensor::ones([1, 1], FLOAT_CPU);
            let product = autocast(false, Some(AutocastKind::BFloat16), || x.matmul(weight));
            product.unwrap().double_value(&[0, 0])
        };
        assert_eq!(times_weight(&weight), 1.0);
        let _ = tch::no_grad(|| weight.fill_(3.0));
        assert_eq!(times_weight(&weight), 3.0);
    }
}
