//! `torch.autocast`.

use crate::{Error, Result, check};
use c10d_sys::amp::{self, AutocastKind};
use tch::{Device, Kind};

/// Runs `body` so that operations on tensors of this device type choose their own kind: matrix products and
/// convolutions run in `dtype`, sums and losses in 32 bits. `with torch.autocast(device.type, dtype=dtype):`
///
/// `None` turns autocast off (`enabled=False`), even inside another block. This differs from Python, where `dtype=None`
/// means on, with PyTorch's default kind. Name the kind instead: [`Kind::BFloat16`] on a CPU, [`Kind::Half`] on CUDA.
///
/// Use it for the forward pass and the loss, not for the backward pass. The setting is per thread;
/// `DataParallel` passes it on to its replicas.
///
/// ```
/// use tch::{Device, Kind, Tensor};
/// use tch_parallel::amp::autocast;
///
/// let x = Tensor::ones([2, 2], (Kind::Float, Device::Cpu));
/// let product = autocast(x.device(), Some(Kind::BFloat16), || x.matmul(&x))?;
/// assert_eq!(product.kind(), Kind::BFloat16);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a kind that autocast does not support, and for devices other than CPU and CUDA.
pub fn autocast<R>(device: Device, dtype: Option<Kind>, body: impl FnOnce() -> R) -> Result<R> {
    let is_known = device == Device::Cpu || device.is_cuda();
    check(is_known, "device", format_args!("{device:?}"), "a CPU or CUDA device")?;
    let kind = dtype.map(|dtype| match dtype {
        Kind::Half => Ok(AutocastKind::Half),
        Kind::BFloat16 => Ok(AutocastKind::BFloat16),
        other => Err(Error::argument("dtype", format!("{other:?}"), "Half or BFloat16")),
    });
    amp::autocast(device.is_cuda(), kind.transpose()?, body).map_err(Error::engine("autocast"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Tensor, kind::FLOAT_CPU};

    #[test]
    fn inside_it_is_set_and_outside_it_is_as_before_at_every_depth() {
        let x = Tensor::ones([2, 2], FLOAT_CPU);
        let product = || x.matmul(&x).kind();
        let within = |dtype| autocast(Device::Cpu, dtype, product).unwrap();
        let inner = || (within(Some(Kind::Half)), within(None), product());
        let kinds = autocast(Device::Cpu, Some(Kind::BFloat16), inner).unwrap();
        assert_eq!((kinds, product()), ((Kind::Half, Kind::Float, Kind::BFloat16), Kind::Float));
    }

    #[test]
    fn another_kind_is_refused() {
        let error = autocast(Device::Cpu, Some(Kind::Float), || ()).unwrap_err().to_string();
        assert_eq!(error, "dtype is Float, but must be Half or BFloat16");
    }
}
