//! The state of the global generators, from which layers draw their weights and dropout its masks,
//! and samples drawn from them or from a generator of their own.

use crate::{Result, arguments::pointer, device::cuda, error::check, error::created_tensor, ffi};
use tch::Tensor;

/// `torch.get_rng_state()`, or `torch.cuda.get_rng_state(device)`: bytes, on the CPU.
pub fn rng_state(cuda_device: Option<usize>) -> Result<Tensor> {
    created_tensor(|out| ffi::c10d_rng_state(index(cuda_device), out))
}

/// `torch.set_rng_state(state)`, or `torch.cuda.set_rng_state(state, device)`.
pub fn set_rng_state(cuda_device: Option<usize>, state: &Tensor) -> Result<()> {
    check(ffi::c10d_set_rng_state(index(cuda_device), pointer(state)))
}

/// `count` numbers below `n`: one `torch.randperm(n, generator=generator)` after the other, with
/// `generator = torch.Generator().manual_seed(seed)`, or the global one without a seed.
pub fn randperm(n: usize, count: usize, seed: Option<u64>) -> Result<Vec<usize>> {
    // SAFETY: `out` has room for the `count` numbers that the call writes.
    drawn(count, |out| unsafe { ffi::c10d_randperm(n as i64, count as i64, seed.as_ref(), out) })
}

/// `count` numbers below `n`: `torch.randint(n, (32,), generator=generator)` and so on, the last in
/// fewer, with the generator of [`randperm`].
pub fn randint(n: usize, count: usize, seed: Option<u64>) -> Result<Vec<usize>> {
    // SAFETY: `out` has room for the `count` numbers that the call writes.
    drawn(count, |out| unsafe { ffi::c10d_randint(n as i64, count as i64, seed.as_ref(), out) })
}

/// `torch.multinomial(weights, count, replacement, generator=generator)` in 64-bit floats, with the
/// generator of [`randperm`].
pub fn multinomial(
    weights: &[f64],
    count: usize,
    replacement: bool,
    seed: Option<u64>,
) -> Result<Vec<usize>> {
    let (n, weights) = (weights.len() as i64, weights.as_ptr());
    // SAFETY: `out` has room for the `count` numbers that the call writes; it reads `n` weights.
    drawn(count, |out| unsafe {
        ffi::c10d_multinomial(weights, n, count as i64, replacement, seed.as_ref(), out)
    })
}

/// Lengths of memory fit an i64.
fn drawn(count: usize, draw: impl FnOnce(*mut i64) -> ffi::Status) -> Result<Vec<usize>> {
    let mut numbers = vec![0; count];
    check(draw(numbers.as_mut_ptr()))?;
    Ok(numbers.into_iter().map(|number| number as usize).collect())
}

fn index(cuda_device: Option<usize>) -> i32 {
    cuda_device.map_or(-1, cuda)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_state_is_refused() {
        let error = set_rng_state(None, &Tensor::zeros([3], (tch::Kind::Uint8, tch::Device::Cpu)));
        assert!(error.unwrap_err().message().contains("of size 5056"));
    }
}
