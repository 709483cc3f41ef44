//! Rust code that C++ calls in the middle of a function, and the Rust values that it holds.

use crate::{Result, error::check, ffi};
use std::{ffi::c_void, panic::AssertUnwindSafe, panic::catch_unwind, panic::resume_unwind};

struct Call<F, R> {
    body: Option<F>,
    outcome: Option<std::thread::Result<R>>,
}

extern "C" fn run<F: FnOnce() -> R, R>(context: *mut c_void) {
    // SAFETY: the address of a `Call` of the same types, which nothing else uses meanwhile; see `call_back`.
    let call = unsafe { &mut *context.cast::<Call<F, R>>() };
    call.outcome = call.body.take().map(|body| catch_unwind(AssertUnwindSafe(body)));
}

/// Hands `start` a function and its context. `start` has C++ call the function once, with this
/// context, before it returns; that runs `body`.
///
/// If `body` panics, the panic continues after `start` has returned.
pub(crate) fn call_back<R, F: FnOnce() -> R>(
    body: F,
    start: impl FnOnce(extern "C" fn(*mut c_void), *mut c_void) -> ffi::Status,
) -> Result<R> {
    let mut call = Call { body: Some(body), outcome: None };
    let started = check(start(run::<F, R>, (&raw mut call).cast()));
    match call.outcome {
        Some(Err(panic)) => resume_unwind(panic),
        Some(Ok(result)) => started.map(|()| result),
        None => Err(started.err().unwrap_or_else(|| "the body was not called".into())),
    }
}

/// Drops the boxed `T` whose address C++ has held. C++ calls this exactly once, and does not use
/// the address afterwards.
pub(crate) extern "C" fn drop_boxed<T>(context: *mut c_void) {
    // A panic while dropping cannot be reported to anyone.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the address is that of a boxed `T`, and this is the only call that takes it back.
        drop(unsafe { Box::from_raw(context.cast::<T>()) });
    }));
}
