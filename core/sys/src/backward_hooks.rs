//! Callbacks during a backward pass and at its end.
//!
//! A hook runs on one of autograd's threads, once for each backward pass that reaches it. It is dropped with the last
//! tensor whose graph leads to it. If it fails, so does the backward pass, with its error.

use crate::error::{answer, check};
use crate::{Result, arguments::pointer, arguments::pointers, callback::drop_boxed, ffi};
use std::ffi::c_void;
use tch::Tensor;

type Hook = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// Calls `hook` before the backward pass of the operation that computed the tensor: `tensor.register_hook`.
pub fn before_backward(
    output: &Tensor,
    hook: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    // SAFETY: the tensor lives through the call; for the rest, see `context`.
    check(unsafe {
        ffi::c10d_before_backward(pointer(output), call, context(hook), drop_boxed::<Hook>)
    })
}

/// Calls `hook` after a backward pass has added to the gradient of a leaf, which `autograd.grad` does not do. The hook
/// is dropped with the leaf's accumulator of gradients, which a [`Reducer`](crate::Reducer) keeps.
pub fn after_accumulation(
    leaf: &Tensor,
    hook: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    // SAFETY: as in `before_backward`.
    check(unsafe {
        ffi::c10d_after_accumulation(pointer(leaf), call, context(hook), drop_boxed::<Hook>)
    })
}

/// Calls `hook` after the backward pass of everything computed from the inputs, and before that of the operations that
/// computed them. The inputs are replaced by views of themselves. One that the loss does not depend on gets a gradient
/// of zeros, as from PyTorch's `RegisterPostBackwardFunction`.
pub fn after_backward(
    inputs: &mut [Tensor],
    hook: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    // SAFETY: the inputs live through the call, which assigns to them; `&mut` rules out any other
    // reference. For the rest, see `context`.
    check(unsafe {
        ffi::c10d_after_backward(pointers(inputs).list(), call, context(hook), drop_boxed::<Hook>)
    })
}

/// Calls `hook` at the end of the backward pass that runs on this thread. Outside one, this is an error.
/// `Variable._execution_engine.queue_callback`.
pub fn at_end_of_backward(hook: impl Fn() -> Result<()> + Send + Sync + 'static) -> Result<()> {
    // SAFETY: see `context`.
    check(unsafe { ffi::c10d_at_end_of_backward(call, context(hook), drop_boxed::<Hook>) })
}

/// Whether a backward pass runs on this thread.
pub fn in_backward() -> bool {
    ffi::c10d_in_backward()
}

/// What C++ holds: the address of a `Hook`, as `call` and `drop_boxed` expect. It calls `drop_boxed` exactly once, and
/// neither of them after that. A hook is Send and Sync, so it does not matter on which threads.
fn context(hook: impl Fn() -> Result<()> + Send + Sync + 'static) -> *mut c_void {
    Box::into_raw(Box::new(Box::new(hook) as Hook)).cast()
}

extern "C" fn call(context: *mut c_void) -> ffi::Status {
    // SAFETY: see `context`.
    answer("a hook of a backward pass", || unsafe { &*context.cast::<Hook>() }())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind, autograd::backward_from, autograd::tests::leaf};
    use std::sync::{Arc, Mutex};

    /// A hook that notes when it is called.
    fn note(
        log: &Arc<Mutex<Vec<&'static str>>>,
        what: &'static str,
    ) -> impl Fn() -> Result<()> + Send + Sync + 'static {
        let log = log.clone();
        move || {
            log.lock().unwrap().push(what);
            Ok(())
        }
    }

    #[test]
    fn hooks_surround_the_backward_pass_of_a_block_and_the_end_comes_last() {
        let log = Arc::default();
        let x = leaf(3.0);
        let mut inputs = [&x * 2.0];
        after_backward(&mut inputs, note(&log, "after the block")).unwrap();
        let [input] = inputs;
        let output = &input * &input;
        before_backward(&output, note(&log, "before the block")).unwrap();
        let end = Arc::new(note(&log, "at the end"));
        let result = output * 5.0;
        before_backward(&result, move || {
            assert!(in_backward());
            let end = end.clone();
            at_end_of_backward(move || end())
        })
        .unwrap();
        backward_from(&result).unwrap();
        assert_eq!(*log.lock().unwrap(), ["before the block", "after the block", "at the end"]);
        // d(5 (2 x)^2)/dx = 40 x.
        assert_eq!(x.grad().double_value(&[]), 120.0);
    }

    #[test]
    fn an_input_that_is_changed_in_place_afterwards_is_noticed() {
        let saved = leaf(0.5).sigmoid();
        let mut inputs = [saved.shallow_clone()];
        after_backward(&mut inputs, || Ok(())).unwrap();
        let changed = inputs[0].f_mul_(&Tensor::from(-2f32));
        assert!(changed.is_err() || saved.f_backward().is_err());
    }

    #[test]
    fn there_is_no_end_outside_a_backward_pass() {
        assert!(!in_backward());
        assert!(at_end_of_backward(|| Ok(())).is_err());
    }

    #[test]
    fn what_a_hook_refuses_or_breaks_the_backward_pass_reports() {
        let x = leaf(1.0);
        let result = &x * 2.0;
        let refusal = Error::new(ErrorKind::Connection, "the others are gone");
        before_backward(&result, move || Err(refusal.clone())).unwrap();
        let error = backward_from(&result).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection);
        assert!(error.message().contains("the others are gone"), "{error}");
        let result = &x * 2.0;
        before_backward(&result, || panic!("in a hook")).unwrap();
        let error = backward_from(&result).unwrap_err();
        assert!(error.message().contains("a hook of a backward pass panicked"), "{error}");
    }

    #[test]
    fn a_hook_lives_as_long_as_a_graph_that_leads_to_it() {
        let held = Arc::new(());
        let theirs = held.clone();
        let mut inputs = [leaf(1.0) * 2.0];
        after_backward(&mut inputs, move || {
            let _ = &theirs;
            Ok(())
        })
        .unwrap();
        let result = &inputs[0] * 2.0;
        drop(inputs);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(result);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
