//! Live and peak bytes of each device.
//!
//! The numbers of a CUDA device come from PyTorch's caching allocator. The CPU has one memory, whose parts exist only
//! in the counts: every block is counted on the part that is current on the allocating thread.

pub use crate::ffi::Bytes;
use crate::{Result, arguments::pointer, device::cuda, error::check, error::written, ffi};
use tch::Tensor;

/// The number of parts into which the CPU's memory is divided; see `c10d.h`.
pub const CPU_DEVICES: usize = 64;

/// The number that stands for none of them.
const HOST: i32 = CPU_DEVICES as i32;

/// Makes a part of the CPU's memory current on this thread, and returns what was current before: a part, or
/// [`CPU_DEVICES`] on a thread that [allocates on the host](allocate_on_host), which this takes back.
///
/// # Panics
/// If there is no such part; see [`CPU_DEVICES`].
pub fn exchange_cpu_device(device: usize) -> usize {
    let device = if device == CPU_DEVICES { HOST } else { cpu(device) };
    // SAFETY: the number is one of those that `c10d.h` names, and the call sets a thread-local number.
    unsafe { ffi::c10d_exchange_cpu_device(device) as usize }
}

/// From now on, what this thread allocates is counted on no part of the CPU's memory, as a host's
/// memory is on none of its GPUs.
pub fn allocate_on_host() {
    exchange_cpu_device(CPU_DEVICES);
}

/// Whether a tensor was allocated by a thread that [allocates on the host](allocate_on_host).
pub fn is_on_host(tensor: &Tensor) -> bool {
    ffi::c10d_cpu_device_of(pointer(tensor)) == HOST
}

/// Bytes of a part of the CPU's memory.
///
/// # Panics
/// If there is no such part; see [`CPU_DEVICES`].
pub fn cpu_bytes(device: usize) -> Bytes {
    // SAFETY: the index is checked.
    unsafe { ffi::c10d_cpu_memory(cpu(device)) }
}

/// Resets the peak to the live bytes.
///
/// # Panics
/// If there is no such part; see [`CPU_DEVICES`].
pub fn reset_cpu_peak(device: usize) {
    // SAFETY: the index is checked.
    unsafe { ffi::c10d_reset_cpu_peak(cpu(device)) }
}

/// Makes this process keep the CPU memory that tensors free, for later ones. Call this first in a training's `main`.
///
/// Every training step allocates the same blocks. glibc returns large ones to the system at once,
/// and getting them back costs a page fault per 4 KiB: 2 % of a step of ResNet-18 on the CPU. The
/// process keeps its peak size. On GPUs, PyTorch's caching allocator does the same. With another C library this does
/// nothing.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets two numbers under malloc's own lock. After it, malloc maps no block on its own and never trims the
    // top of the heap, which is what -1 means.
    unsafe {
        libc::mallopt(libc::M_MMAP_MAX, 0);
        libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
    }
}

/// The part of the CPU's memory that a tensor's block is counted on; `None` if it is [on the host](is_on_host) or has
/// no block of its own: an empty tensor, a sparse one, or one over memory lent to libtorch.
pub fn cpu_device_of(tensor: &Tensor) -> Option<usize> {
    let device = usize::try_from(ffi::c10d_cpu_device_of(pointer(tensor))).ok();
    device.filter(|&device| device < CPU_DEVICES)
}

/// Bytes of a CUDA device, as its caching allocator counts them.
pub fn cuda_bytes(device: usize) -> Result<Bytes> {
    written(|out| ffi::c10d_cuda_memory(cuda(device), out))
}

/// Resets the peak to the live bytes.
pub fn reset_cuda_peak(device: usize) -> Result<()> {
    check(ffi::c10d_reset_cuda_peak(cuda(device)))
}

fn cpu(device: usize) -> i32 {
    let last = CPU_DEVICES - 1;
    assert!(device <= last, "cpu:{device} does not exist: the last is cpu:{last}");
    device as i32
}
