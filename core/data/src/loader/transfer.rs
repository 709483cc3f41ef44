//! How a batch comes to a device.

use crate::{Result, Tensors, dataset::replace};
use c10d_sys::memory;
use tch::{Device, Tensor};

/// `tensor.pin_memory()`
pub(super) fn pinned<B: Tensors>(batch: Option<Result<B>>, pin_memory: bool) -> Option<Result<B>> {
    if !pin_memory {
        return batch;
    }
    // What `Tensor::pin_memory` calls, without libtorch's warning that tch names a device. Any index serves all GPUs.
    let pin = |batch| replace(batch, |tensor| tensor.f_internal_pin_memory(Device::Cuda(0)));
    batch.map(|batch| Ok(pin(batch?)?))
}

/// `tensor.to(device, non_blocking=True)`
pub(super) fn moved<B: Tensors>(batch: B, device: Device) -> Result<B> {
    let to = |tensor: &Tensor| {
        // The loop would read a copy from a GPU before it has arrived.
        let non_blocking = device != Device::Cpu || tensor.device() == Device::Cpu;
        let copy = memory::is_on_host(tensor);
        tensor.f_to_device_(device, tensor.kind(), non_blocking, copy)
    };
    Ok(replace(batch, to)?)
}
