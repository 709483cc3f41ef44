//! Gradient buckets, reduced while the backward pass runs.

use crate::arguments::{c_text, c_texts, pointer, pointers};
use crate::error::{check, created, written};
use crate::{ProcessGroup, Result, Work, ffi, ffi::ReducerOptions, ffi::Text, owned::Owned};
use std::{ffi::CStr, ptr::null_mut};
use tch::Tensor;

/// Whether a reducer in use sees the gradients of a parameter. It no longer does once tch has converted the parameter to
/// another kind or moved it, even if that was undone.
pub fn is_in_reducer(parameter: &Tensor) -> bool {
    ffi::c10d_is_in_reducer(pointer(parameter))
}

/// A handle to a `c10d::Reducer` and its `c10d::Logger`.
///
/// It can be dropped before, during or within a backward pass, on any thread: graphs that lead to
/// the parameters keep what their backward passes need.
#[derive(Debug)]
pub struct Reducer {
    pub(crate) handle: Owned<ffi::Reducer>,
    /// How many it has.
    parameters: usize,
}

// SAFETY: the C++ object is not bound to a thread. It locks its own mutex in the hooks, which autograd may run on
// threads of its own and even when this handle is gone. All other calls are serialised by `&mut self`.
unsafe impl Send for Reducer {}

impl Reducer {
    /// Hooks into the gradients of `parameters`, whose number, order, shapes and types must be equal on all ranks; see
    /// [`ProcessGroup::verify_params`]. `sparse` tells of each parameter whether its gradient is sparse. `bucket_bytes`
    /// are the sizes of the buckets, at least one; buckets beyond these have the last size.
    /// Without `limit_first_buckets`, there are one or two: the first bucket's and all others'.
    pub fn new<S: AsRef<str>>(
        group: &ProcessGroup,
        parameters: &[Tensor],
        names: &[S],
        sparse: &[bool],
        module_name: &str,
        bucket_bytes: &[usize],
        options: ReducerOptions,
    ) -> Result<Reducer> {
        assert_eq!(parameters.len(), names.len(), "every parameter has a name");
        assert_eq!(parameters.len(), sparse.len(), "every gradient is sparse or not");
        assert!(!bucket_bytes.is_empty(), "buckets have a size");
        let names = c_texts(names)?;
        let names: Vec<_> = names.iter().map(|name| Text::new(name)).collect();
        let module_name = c_text(module_name)?;
        // SAFETY: `parameters`, `names` and `sparse` hold the same number of elements, and `bucket_bytes` comes with its
        // length.
        let handle = created(|out| unsafe {
            ffi::c10d_reducer_new(
                group.pointer(),
                pointers(parameters).list(),
                names.as_ptr(),
                sparse.as_ptr(),
                Text::new(&module_name),
                bucket_bytes.as_ptr(),
                bucket_bytes.len(),
                &options,
                out,
            )
        })?;
        Ok(Reducer { handle, parameters: parameters.len() })
    }

    /// Call this before a forward pass whose gradients are to be exchanged.
    pub fn prepare_for_forward(&mut self) -> Result<()> {
        self.after_backward(ffi::c10d_reducer_prepare_for_forward(&self.handle))
    }

    /// Whether gradients that come now are exchanged: after a forward pass, until all of its gradients have been.
    pub fn expects_gradients(&self) -> Result<bool> {
        written(|out| ffi::c10d_reducer_expects_gradients(&self.handle, out))
    }

    /// Reorders the buckets by the arrival of the gradients: once, before the second forward pass.
    /// Returns whether the buckets have changed, or an error of the previous backward pass.
    pub fn rebuild_buckets(&mut self) -> Result<bool> {
        let mut rebuilt = false;
        self.after_backward(ffi::c10d_reducer_rebuild_buckets(&self.handle, &mut rebuilt))?;
        Ok(rebuilt)
    }

    /// The numbers of each bucket's parameters, in their order there.
    pub fn buckets(&self) -> Result<Vec<Vec<usize>>> {
        let mut indices = vec![0; self.parameters];
        let mut numbers = indices.clone();
        let (first, number) = (indices.as_mut_ptr(), numbers.as_mut_ptr());
        // SAFETY: both have room for each parameter.
        check(unsafe { ffi::c10d_reducer_buckets(&self.handle, first, number) })?;
        let buckets = numbers.chunk_by(PartialEq::eq).map(<[usize]>::len);
        Ok(buckets.map(|len| indices.drain(..len).collect()).collect())
    }

    /// Call this after a forward pass whose gradients are to be exchanged.
    pub fn prepare_for_backward(&mut self, outputs: &[Tensor]) -> Result<()> {
        let outputs = pointers(outputs);
        self.after_backward(ffi::c10d_reducer_prepare_for_backward(&self.handle, outputs.list()))
    }

    /// Takes back a [`prepare_for_backward`](Self::prepare_for_backward) that no backward pass has followed.
    pub fn expect_no_gradients(&mut self) -> Result<()> {
        check(ffi::c10d_reducer_expect_no_gradients(&self.handle))
    }

    /// For what fails if the last backward pass has not made all gradients.
    fn after_backward(&self, status: ffi::Status) -> Result<()> {
        let Err(mut error) = check(status) else { return Ok(()) };
        let mut missing = vec![0; self.parameters];
        let indices = missing.as_mut_ptr();
        // SAFETY: there is room for each parameter.
        let len = written(|len| unsafe { ffi::c10d_reducer_missing(&self.handle, indices, len) })?;
        missing.truncate(len);
        error.missing = missing;
        Err(error)
    }

    /// Whether outputs must pass through [`sink`](Self::sink): always when searching for unused
    /// parameters, and until the first backward pass of a static graph.
    pub fn needs_sink(&self) -> bool {
        ffi::c10d_reducer_needs_sink(&self.handle)
    }

    /// Passes the outputs through an identity function whose backward tells the reducer that the
    /// backward pass has begun; `_DDPSink` in PyTorch's `distributed.py`.
    pub fn sink(&mut self, outputs: &mut [Tensor]) -> Result<()> {
        check(ffi::c10d_reducer_sink(&self.handle, pointers(outputs).list()))
    }

    /// Gradients will be of the kind of this tensor until they are reduced; see [`set_data`].
    pub fn compute_in(&mut self, like: &Tensor) -> Result<()> {
        check(ffi::c10d_reducer_compute_in(&self.handle, pointer(like)))
    }

    /// Notes in the logging data that ranks may have uneven numbers of inputs.
    pub fn set_uneven_input_join(&mut self) -> Result<()> {
        check(ffi::c10d_reducer_set_uneven_input_join(&self.handle))
    }

    /// Passes the exchange that counts the ranks still training, as a sum of ones. The gradients of the next backward
    /// pass are divided by that count, or by the size of the group if `use_static_world_size` is set. After `None`,
    /// they are always divided by the size of the group.
    pub fn set_forward_pass_work(
        &mut self,
        work: Option<Work>,
        use_static_world_size: bool,
    ) -> Result<()> {
        let (reducer, counting) = (&self.handle, work.as_ref().map(|work| &*work.0));
        check(ffi::c10d_reducer_set_forward_pass_work(reducer, counting, use_static_world_size))
    }

    /// Takes part in the exchanges of other ranks' backward passes with zero gradients: those of
    /// the buckets and, with `find_unused_parameters`, that of used parameters. Blocks.
    pub fn shadow_backward(&mut self) -> Result<()> {
        check(ffi::c10d_reducer_shadow_backward(&self.handle))
    }

    /// A text of `c10::DDPLoggingData`, by name; empty if nothing with that name was logged.
    pub fn logged_text(&self, name: &str) -> Result<String> {
        let mut text = null_mut();
        check(ffi::c10d_reducer_logged_text(&self.handle, Text::new(&c_text(name)?), &mut text))?;
        if text.is_null() {
            return Ok(String::new());
        }
        // SAFETY: `text` is a NUL-terminated string from strdup, ours to free.
        unsafe {
            let value = CStr::from_ptr(text).to_string_lossy().into_owned();
            ffi::c10d_free(text.cast());
            Ok(value)
        }
    }

    /// A number of `c10::DDPLoggingData`, by name; 0 if nothing with that name was logged.
    pub fn logged_number(&self, name: &str) -> Result<i64> {
        let name = c_text(name)?;
        written(|out| ffi::c10d_reducer_logged_number(&self.handle, Text::new(&name), out))
    }
}

/// The positions of parameters in the order in which a reducer's buckets list them. `None` if no
/// reducer is hooked into them, or if no backward pass has shown the order yet.
pub fn bucket_order(parameters: &[Tensor]) -> Result<Option<Vec<usize>>> {
    let mut order = vec![0; parameters.len()];
    // SAFETY: `order` has room for each parameter.
    let len = written(|len| unsafe {
        ffi::c10d_bucket_order(pointers(parameters).list(), order.as_mut_ptr(), len)
    })?;
    order.truncate(len);
    Ok(Some(order).filter(|order| !order.is_empty()))
}

/// From the next forward pass on, the buckets of every reducer that is hooked into exactly these
/// parameters list them in this order, as if their gradients had arrived in it. Buckets that a
/// backward pass has put in order stay as they are. All ranks must do the same.
pub fn set_bucket_order(parameters: &[Tensor]) -> Result<()> {
    check(ffi::c10d_set_bucket_order(pointers(parameters).list()))
}

/// `parameter.data = data`. If that is of another kind, the gradients of passes that use it are of that
/// kind too, and are exchanged by reducers that are hooked into the parameter only if `exchanges`.
pub fn set_data(parameter: &mut Tensor, data: &Tensor, exchanges: bool) -> Result<()> {
    check(ffi::c10d_parameter_set_data(pointer(parameter), pointer(data), exchanges))
}
