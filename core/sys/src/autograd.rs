//! Backward passes, whole and in parts, and a thread's state on another thread.

use crate::arguments::{given_up, pointer, pointers};
use crate::error::{answer, check, created};
use crate::{Result, callback::call_back, callback::drop_boxed, ffi, owned::Owned};
use std::ffi::c_void;
use tch::Tensor;

/// `tensor.backward()`. Unlike tch's, the error says what kind of failure it was.
pub fn backward_from(tensor: &Tensor) -> Result<()> {
    check(ffi::c10d_tensor_backward(pointer(tensor)))
}

/// The end of a tensor's graph, which is all that a backward pass needs of it. Does not keep the tensor's memory.
#[derive(Debug)]
pub struct GraphEnd(Owned<ffi::GraphEnd>);

// SAFETY: a reference to a node of the graph, which autograd itself hands from thread to thread.
unsafe impl Send for GraphEnd {}
// SAFETY: the reference is only copied.
unsafe impl Sync for GraphEnd {}

impl GraphEnd {
    /// The end for a tensor that requires a gradient.
    pub fn of(tensor: &Tensor) -> Result<GraphEnd> {
        created(|out| ffi::c10d_graph_end_new(pointer(tensor), out)).map(GraphEnd)
    }
}

/// `torch.autograd.backward(tensors, gradients, retain_graph)` for the tensors of these ends.
///
/// Each gradient is freed as soon as it has been used.
pub fn backward(ends: &[&GraphEnd], gradients: Vec<Tensor>, retain_graph: bool) -> Result<()> {
    assert_eq!(ends.len(), gradients.len(), "every end has its gradient");
    let ends: Vec<&ffi::GraphEnd> = ends.iter().map(|end| &*end.0).collect();
    // SAFETY: both lists live through the call and are equally long. The gradients are ours, and
    // what the call leaves in their handles is an undefined tensor, which may be dropped.
    check(unsafe { ffi::c10d_backward(ends.as_ptr(), pointers(&gradients).list(), retain_graph) })
}

/// Fails unless the backward pass on this thread adds to the gradients of leaves, as `autograd.grad` does not.
pub fn check_accumulates(what: &str) -> Result<()> {
    let message = "does not support `autograd.grad`, `run_backward` or `inputs`: call `backward`";
    if ffi::c10d_is_checkpoint_valid() { Ok(()) } else { Err(format!("{what} {message}").into()) }
}

/// The caller's part of a backward pass. Receives the gradients of the leaves, `None` for one that
/// the pass has not reached, and whether to keep the graph; returns the gradients of the inputs.
type Hook = Box<dyn FnMut(Vec<Option<Tensor>>, bool) -> Result<Vec<Option<Tensor>>> + Send>;

/// What C++ holds for the graph.
struct Context {
    hook: Hook,
    leaves: usize,
    inputs: usize,
}

/// Replaces each leaf by a tensor with the same data, from which a backward pass continues to
/// `inputs` through `hook`: a `torch.autograd.Function` whose forward pass has already been run.
/// The backward pass no longer reaches the graph that a leaf had. As with `detach`, a change in place
/// shows in both tensors, and is an error of a backward pass that needs the old values.
///
/// The hook is called once for each backward pass that reaches a leaf, on whichever thread autograd uses, and is
/// dropped with the last tensor whose graph leads to it. `backward` returns its errors. With `create_graph` it fails.
pub fn hook_gradients(
    leaves: &mut [Tensor],
    inputs: &[Tensor],
    hook: impl FnMut(Vec<Option<Tensor>>, bool) -> Result<Vec<Option<Tensor>>> + Send + 'static,
) -> Result<()> {
    let context = Context { hook: Box::new(hook), leaves: leaves.len(), inputs: inputs.len() };
    // SAFETY: the context is the address of a `Context`, as `call` and `drop_boxed` expect. C++ calls `drop_boxed`
    // exactly once, and neither of them after that. Hooks are Send, and autograd runs a node's backward on one thread
    // at a time. The leaves live through the call, which assigns to them; `&mut` rules out any other reference.
    check(unsafe {
        ffi::c10d_hook_gradients(
            pointers(leaves).list(),
            pointers(inputs).list(),
            call,
            Box::into_raw(Box::new(context)).cast(),
            drop_boxed::<Context>,
        )
    })
}

extern "C" fn call(
    context: *mut c_void,
    gradients: *mut *mut ffi::Tensor,
    keep_graph: bool,
    input_gradients: *mut *mut ffi::Tensor,
) -> ffi::Status {
    answer("a gradient hook", || {
        // SAFETY: see `hook_gradients`; only the calling node has this context.
        let Context { hook, leaves, inputs } = unsafe { &mut *context.cast::<Context>() };
        let gradients = (0..*leaves)
            .map(|index| {
                // SAFETY: `gradients` has an entry for each leaf, null or a tensor that lives through
                // the call; a clone of it is a reference of our own.
                unsafe {
                    let gradient = *gradients.add(index);
                    (!gradient.is_null()).then(|| Tensor::clone_from_ptr(gradient.cast()))
                }
            })
            .collect();
        let given = hook(gradients, keep_graph)?;
        for (index, gradient) in given.into_iter().enumerate().take(*inputs) {
            if let Some(gradient) = gradient {
                // SAFETY: `input_gradients` has an entry for each input. C++ deletes the tensor that it finds there.
                unsafe { *input_gradients.add(index) = given_up(gradient) };
            }
        }
        Ok(())
    })
}

/// A thread's own settings: grad mode, autocast and its type, profiler …; `at::ThreadLocalState`.
#[derive(Debug)]
pub struct ThreadState(Owned<ffi::ThreadState>);

// SAFETY: a copy of a thread's settings, made to be carried to other threads and never written to.
unsafe impl Send for ThreadState {}
// SAFETY: as above.
unsafe impl Sync for ThreadState {}

impl ThreadState {
    /// This thread's settings.
    pub fn of_this_thread() -> Result<ThreadState> {
        // SAFETY: the call writes a handle.
        created(|out| unsafe { ffi::c10d_thread_state_new(out) }).map(ThreadState)
    }

    /// Runs `body` on this thread with the settings of the thread that this was taken from.
    ///
    /// If `body` panics, the panic continues after this thread's own settings have been restored.
    pub fn run<R>(&self, body: impl FnOnce() -> R) -> Result<R> {
        call_back(body, |entry, context| {
            // SAFETY: `call_back` gives what belongs together.
            unsafe { ffi::c10d_thread_state_run(&self.0, entry, context) }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Error, ErrorKind, amp::AutocastKind, amp::autocast, tensor::grad_enabled};
    use std::{panic::AssertUnwindSafe, panic::catch_unwind, sync::Arc, sync::Mutex, thread};
    use tch::{Kind, kind::FLOAT_CPU};

    pub(crate) fn leaf(value: f64) -> Tensor {
        Tensor::from(value as f32).set_requires_grad(true)
    }

    fn number(tensor: &Tensor) -> f64 {
        tensor.double_value(&[])
    }

    #[test]
    fn what_has_no_graph_has_no_end() {
        let error = GraphEnd::of(&Tensor::from(1.0)).unwrap_err();
        assert!(error.message().contains("does not require grad"), "{error}");
    }

    #[test]
    fn a_hook_gets_the_gradients_of_the_leaves_that_were_reached_and_gives_those_of_the_inputs() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let x = leaf(4.0);
        let inputs = [&x * 2.0, &x * 3.0];
        let mut leaves = [leaf(1.0), leaf(2.0), leaf(3.0)];
        hook_gradients(&mut leaves, &inputs, move |gradients, keep| {
            let numbers = gradients.iter().map(|g| g.as_ref().map(number)).collect::<Vec<_>>();
            sink.lock().unwrap().push((numbers, keep));
            Ok(vec![Some(Tensor::from(10f32)), None])
        })
        .unwrap();
        (&leaves[0] * 5.0 + &leaves[2] * 7.0).backward();
        assert_eq!(*seen.lock().unwrap(), [(vec![Some(5.0), None, Some(7.0)], false)]);
        assert_eq!(number(&x.grad()), 2.0 * 10.0);
    }

    #[test]
    fn a_graph_that_has_saved_a_leaf_notices_that_it_was_changed_in_place_afterwards() {
        let x = leaf(0.5);
        let saved = x.sigmoid();
        let mut leaves = [saved.shallow_clone()];
        hook_gradients(&mut leaves, &[], |_, _| Ok(Vec::new())).unwrap();
        saved.f_backward().unwrap();
        let sigmoid = number(&saved);
        // A float32 derivative of 0.235 has an error of about 1e-8.
        assert!((number(&x.grad()) - sigmoid * (1.0 - sigmoid)).abs() < 1e-7);

        let saved = x.sigmoid();
        let mut leaves = [saved.shallow_clone()];
        hook_gradients(&mut leaves, &[], |_, _| Ok(Vec::new())).unwrap();
        let _ = leaves[0].g_mul_scalar_(-2.0);
        let error = saved.f_backward().unwrap_err().to_string();
        assert!(error.contains("modified by an inplace operation"), "{error}");
    }

    #[test]
    fn what_a_hook_refuses_the_backward_pass_reports() {
        let mut leaves = [leaf(1.0)];
        hook_gradients(&mut leaves, &[], |_, _| Err("not like this".into())).unwrap();
        let error = leaves[0].f_backward().unwrap_err().to_string();
        assert!(error.contains("not like this"), "{error}");
        let mut leaves = [leaf(1.0)];
        hook_gradients(&mut leaves, &[], |_, _| panic!("in a hook")).unwrap();
        let error = leaves[0].f_backward().unwrap_err().to_string();
        assert!(error.contains("a gradient hook panicked"), "{error}");
    }

    #[test]
    fn a_failure_of_a_hook_is_of_the_kind_that_the_hook_says_whatever_its_words() {
        for kind in [ErrorKind::Connection, ErrorKind::Timeout, ErrorKind::Misuse, ErrorKind::Other]
        {
            let mut leaves = [leaf(1.0)];
            let refusal = Error::new(kind, "the connection of layer 3 timed out");
            hook_gradients(&mut leaves, &[], move |_, _| Err(refusal.clone())).unwrap();
            assert_eq!(backward_from(&leaves[0]).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn a_hook_lives_as_long_as_a_graph_that_leads_to_it() {
        let held = Arc::new(());
        let theirs = held.clone();
        let mut leaves = [leaf(1.0)];
        hook_gradients(&mut leaves, &[], move |_, _| {
            let _ = &theirs;
            Ok(Vec::new())
        })
        .unwrap();
        let result = &leaves[0] * 2.0;
        drop(leaves);
        assert_eq!(Arc::strong_count(&held), 2);
        drop(result);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn another_thread_takes_over_grad_mode_and_autocast_and_gives_them_back() {
        let ones = || Tensor::ones([2, 2], FLOAT_CPU);
        let settings = move || (grad_enabled(), ones().matmul(&ones()).kind());
        let without_grad = || tch::no_grad(ThreadState::of_this_thread);
        let state = autocast(false, Some(AutocastKind::Half), without_grad).unwrap().unwrap();
        let inside_and_after =
            thread::spawn(move || (state.run(settings).unwrap(), settings())).join().unwrap();
        assert_eq!(inside_and_after, ((false, Kind::Half), (true, Kind::Float)));
    }

    #[test]
    fn a_panic_goes_on_after_the_threads_own_state_is_back() {
        let state = tch::no_grad(ThreadState::of_this_thread).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| state.run(|| panic!("inside"))));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
        assert!(grad_enabled());
    }
}
