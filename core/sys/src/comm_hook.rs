//! Communication hooks, which replace the division and sum of a gradient bucket over the ranks.

use crate::arguments::{c_text, given_up, pointer};
use crate::error::{answer, check, created_tensor};
use crate::{Result, callback::drop_boxed, ffi, ffi::Text, reducer::Reducer};
use std::{ffi::c_void, ptr::NonNull, ptr::null_mut, sync::Mutex, sync::TryLockError};
use tch::Tensor;

/// A bucket whose gradients are complete on this rank; `torch.distributed.GradBucket`.
///
/// It is valid only during the call that receives it; its tensors can be kept.
#[derive(Debug)]
pub struct GradBucket(NonNull<ffi::GradBucket>);

impl GradBucket {
    /// Its index among the buckets, which is also the order of exchange. `bucket.index()`
    pub fn index(&self) -> usize {
        ffi::c10d_grad_bucket_index(self.handle())
    }

    /// Whether it is the last bucket of this backward pass. `bucket.is_last()`
    pub fn is_last(&self) -> bool {
        ffi::c10d_grad_bucket_is_last(self.handle())
    }

    /// All gradients of the bucket in one flat tensor, undivided. Writing to it changes the bucket. `bucket.buffer()`
    pub fn buffer(&self) -> Result<Tensor> {
        created_tensor(|out| ffi::c10d_grad_bucket_buffer(self.handle(), out))
    }

    /// Replaces the buffer by another tensor, for a hook that is called with this bucket later.
    /// `bucket.set_buffer(tensor)`
    pub fn set_buffer(&mut self, buffer: &Tensor) -> Result<()> {
        check(ffi::c10d_grad_bucket_set_buffer(self.handle(), pointer(buffer)))
    }

    /// The gradient of each parameter, as a view into the buffer. `bucket.gradients()`
    pub fn gradients(&self) -> Result<Vec<Tensor>> {
        // SAFETY: `tensors` passes room for every parameter of the bucket.
        self.tensors(|out| unsafe { ffi::c10d_grad_bucket_gradients(self.handle(), out) })
    }

    /// The parameters, in the order of [`gradients`](Self::gradients). `bucket.parameters()`
    pub fn parameters(&self) -> Result<Vec<Tensor>> {
        // SAFETY: as in `gradients`.
        self.tensors(|out| unsafe { ffi::c10d_grad_bucket_parameters(self.handle(), out) })
    }

    fn handle(&self) -> &ffi::GradBucket {
        // SAFETY: the handle is valid for as long as this bucket exists; see `start`.
        unsafe { self.0.as_ref() }
    }

    fn tensors(
        &self,
        fill: impl FnOnce(*mut *mut ffi::Tensor) -> ffi::Status,
    ) -> Result<Vec<Tensor>> {
        let mut pointers = vec![null_mut(); ffi::c10d_grad_bucket_len(self.handle())];
        check(fill(pointers.as_mut_ptr()))?;
        // SAFETY: the call has made each at::Tensor with `new` and given up ownership of it.
        Ok(pointers.into_iter().map(|each| unsafe { Tensor::from_ptr(each.cast()) }).collect())
    }
}

/// Waits for what the hook has started, and returns the tensor that replaces the bucket's buffer, with the same shape.
pub type Finish = Box<dyn FnOnce() -> Result<Tensor> + Send>;

/// In a mutex because the reducer's lock does not cover hooks called by `shadow_backward`, during
/// which a backward pass may run on another thread, or within the hook itself.
type Hook = Mutex<Box<dyn FnMut(&mut GradBucket) -> Result<Finish> + Send>>;

impl Reducer {
    /// Calls `hook` with every bucket as soon as its gradients are complete. Once all buckets are,
    /// calls the functions that `hook` returned, one bucket after the other, on the thread of the
    /// backward pass. `backward` returns the errors of both.
    ///
    /// Call this once, before the first backward pass. `name` is for the logging data.
    pub fn register_comm_hook(
        &mut self,
        name: &str,
        hook: impl FnMut(&mut GradBucket) -> Result<Finish> + Send + 'static,
    ) -> Result<()> {
        let name = c_text(name)?;
        let drop_pending = drop_boxed::<Finish>;
        let functions = ffi::CommHook { start, finish, drop_pending, drop: drop_boxed::<Hook> };
        let hook: Box<Hook> = Box::new(Mutex::new(Box::new(hook)));
        // SAFETY: the context is the address of a `Hook`, and every `pending` that of a `Finish`,
        // as the functions expect. C++ calls `drop` exactly once, even when it fails, and either `finish` or
        // `drop_pending` once for each `pending`. A `Hook` is Sync, a `Finish` is Send.
        check(unsafe {
            ffi::c10d_reducer_register_comm_hook(
                &self.handle,
                Text::new(&name),
                &functions,
                Box::into_raw(hook).cast(),
            )
        })
    }
}

/// What messages call it.
const A_HOOK: &str = "a communication hook";

extern "C" fn start(
    context: *mut c_void,
    bucket: *mut ffi::GradBucket,
    pending: *mut *mut c_void,
) -> ffi::Status {
    answer(A_HOOK, || {
        let handle = NonNull::new(bucket).ok_or("there is no bucket")?;
        // SAFETY: see `register_comm_hook`; the reference is shared.
        let hook = unsafe { &*context.cast::<Hook>() };
        let mut hook = match hook.try_lock() {
            Ok(hook) => hook,
            // The panic's message has been reported; what the hook left unfinished is its own matter.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Two simultaneous backward passes would exchange buckets in different orders on different ranks.
            Err(TryLockError::WouldBlock) => {
                return Err("a communication hook was called while it was running: a model can \
                            have one backward pass at a time"
                    .into());
            }
        };
        // The hook only borrows the bucket, so it cannot use the handle after this call.
        let finish = hook(&mut GradBucket(handle))?;
        // SAFETY: `pending` points to a place for one address.
        unsafe { *pending = Box::into_raw(Box::new(finish)).cast() };
        Ok(())
    })
}

extern "C" fn finish(pending: *mut c_void, result: *mut *mut ffi::Tensor) -> ffi::Status {
    answer(A_HOOK, || {
        // SAFETY: `start` has made it, and C++ hands it back once, here or to `drop_pending`.
        let finish = unsafe { Box::from_raw(pending.cast::<Finish>()) };
        let tensor = given_up(finish()?);
        // SAFETY: `result` points to a place for one address. C++ deletes the at::Tensor that it finds there.
        unsafe { *result = tensor };
        Ok(())
    })
}
