//! The state of the global generators, from which layers draw their weights and dropout its masks.

use crate::error::{check, created};
use crate::process_group::pointer;
use crate::{Error, ffi};
use std::ptr::null_mut;
use tch::Tensor;

/// `torch.get_rng_state()`, or `torch.cuda.get_rng_state(device)`: bytes, on the CPU.
pub fn rng_state(cuda_device: Option<usize>) -> Result<Tensor, Error> {
    let mut state = null_mut();
    // SAFETY: the call writes a tensor's address to `state`.
    let status = unsafe { ffi::c10d_rng_state(index(cuda_device), &mut state) };
    let state = created(status, state)?;
    // SAFETY: the call has made this at::Tensor with `new` and given up ownership of it.
    Ok(unsafe { Tensor::from_ptr(state.as_ptr().cast()) })
}

/// `torch.set_rng_state(state)`, or `torch.cuda.set_rng_state(state, device)`.
pub fn set_rng_state(cuda_device: Option<usize>, state: &Tensor) -> Result<(), Error> {
    // SAFETY: `state` lives through the call.
    check(unsafe { ffi::c10d_set_rng_state(index(cuda_device), pointer(state)) })
}

fn index(cuda_device: Option<usize>) -> i32 {
    cuda_device.map_or(-1, |device| i32::try_from(device).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

    use super::*;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn from_the_same_state_the_same_numbers_come() {
        let state = rng_state(None).unwrap();
        let first = Tensor::rand([4], FLOAT_CPU);
        assert_ne!(Tensor::rand([4], FLOAT_CPU), first);
        set_rng_state(None, &state).unwrap();
        assert_eq!(Tensor::rand([4], FLOAT_CPU), first);
    }

    #[test]
    fn what_is_no_state_is_refused() {
        let error = set_rng_state(None, &Tensor::zeros([3], (tch::Kind::Uint8, tch::Device::Cpu)));
        assert!(error.unwrap_err().message().contains("of size 5056"));
    }
}
