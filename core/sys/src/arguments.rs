//! Rust's values as arguments of the C ABI.

use crate::{Error, Result, ffi};
use std::{ffi::CString, ffi::c_int, mem::ManuallyDrop, time::Duration};
use tch::Tensor;

pub(crate) fn pointer(tensor: &Tensor) -> &ffi::Tensor {
    // SAFETY: tch's C_tensor is at::Tensor, which is what the C ABI takes, and lives as long as `tensor`.
    unsafe { &*tensor.as_ptr().cast::<ffi::Tensor>() }
}

/// The address of a tensor that C++ will delete.
pub(crate) fn given_up(tensor: Tensor) -> *mut ffi::Tensor {
    ManuallyDrop::new(tensor).as_ptr().cast_mut().cast()
}

/// A list of tensors for the C ABI.
pub(crate) struct Pointers<'a>(Vec<&'a ffi::Tensor>);

pub(crate) fn pointers(tensors: &[Tensor]) -> Pointers<'_> {
    Pointers(tensors.iter().map(pointer).collect())
}

impl Pointers<'_> {
    pub(crate) fn list(&self) -> ffi::Tensors<'_> {
        self.0.as_slice().into()
    }
}

pub(crate) fn c_texts<S: AsRef<str>>(texts: &[S]) -> Result<Vec<CString>> {
    texts.iter().map(|text| c_text(text.as_ref())).collect()
}

/// Ranks and world sizes are ints in c10d, which rejects one that does not fit as negative.
pub(crate) fn c_rank(rank: usize) -> c_int {
    c_int::try_from(rank).unwrap_or(-1)
}

/// A longer timeout would overflow clocks, so cut it to this.
pub const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// At least 1, because zero means no timeout to the engine.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// Text for the C ABI, where it would end at the first NUL.
pub(crate) fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::misuse(format!("{text:?} contains a NUL character")))
}
