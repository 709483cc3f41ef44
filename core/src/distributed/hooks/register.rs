//! How the engine calls a hook, and how its failures are reported.

use super::{CommHook, GradBucket};
use crate::distributed::{DistributedDataParallel, ProcessGroup};
use crate::error::of_panic;
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tch::Tensor;

/// The original error of a hook: the engine returns only its text.
pub(in crate::distributed) type Failure = Arc<Mutex<Option<Error>>>;

impl<M> DistributedDataParallel<M> {
    /// Makes `hook` exchange the gradients from now on. A collective.
    ///
    /// Call this once per model, before its first forward pass: without a hook, the engine divides
    /// the gradients. If a hook returns an error or panics, [`backward`](Self::backward) returns
    /// it; gradients cannot be exchanged afterwards, so end the program. `model.register_comm_hook`
    ///
    /// ```
    /// # use tch::nn;
    /// # use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
    /// use tch_parallel::distributed::hooks;
    ///
    /// # let group = ProcessGroup::from_env()?;
    /// # let vs = nn::VarStore::new(group.device());
    /// # let module = nn::linear(vs.root(), 4, 1, Default::default());
    /// # let model = DistributedDataParallel::new(module, &vs, &group)?;
    /// model.register_comm_hook(hooks::Fp16Compress)?; // half the bytes
    /// assert_eq!(model.logging_data()?.comm_hook, "fp16_compress_hook");
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::Argument`]: the model already has a hook, or has made a forward pass.
    /// - [`Error::Collective`]: another rank registers a hook with another name.
    pub fn register_comm_hook(&self, hook: impl CommHook + 'static) -> Result<()> {
        const OPERATION: &str = "register_comm_hook";
        let name = hook.name();
        let misuse = match (self.hook_failure.get(), self.has_run_forward.get()) {
            (Some(_), _) => Some("registered a second time"),
            (_, true) => Some("registered after a forward pass"),
            _ => None,
        };
        if let Some(found) = misuse {
            return Err(Error::Argument {
                what: format!("the communication hook {name}"),
                found: found.into(),
                expected: "registered once, before the first forward pass".into(),
            });
        }
        let objection = self
            .group
            .compare_with_rank_0(OPERATION, &name)?
            .filter(|theirs| *theirs != name)
            .map(|theirs| {
                format!(
                    "it registers the communication hook {name}, where rank 0 registers {theirs}; \
                     register the same on every rank"
                )
            });
        self.group.agree(OPERATION, objection.as_deref())?;

        let failure = Failure::default();
        let guard = Guard { name, group: self.group.clone(), failure: Arc::clone(&failure) };
        self.reducer
            .borrow_mut()
            .register_comm_hook(&guard.name.clone(), guard.around(hook))
            .map_err(|error| self.group.failed(OPERATION, &error))?;
        // Only this function sets it, and only once.
        let _ = self.hook_failure.set(failure);
        Ok(())
    }

    /// The failure of a hook, if that is why the engine failed.
    pub(in crate::distributed) fn take_hook_failure(&self) -> Option<Error> {
        self.hook_failure.get()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs a hook and keeps its failures.
#[derive(Clone)]
struct Guard {
    name: String,
    group: ProcessGroup,
    failure: Failure,
}

impl Guard {
    /// The hook in the form that the engine calls.
    fn around(
        self,
        mut hook: impl CommHook + 'static,
    ) -> impl FnMut(&mut c10d_sys::GradBucket) -> Result<c10d_sys::Finish, String> + Send + 'static
    {
        move |bucket| {
            let index = bucket.index();
            let (buffer, finish) = self.run(|| {
                let mut bucket = GradBucket::new(bucket);
                Ok((bucket.buffer()?, hook.start(&self.group, &mut bucket)?))
            })?;
            let guard = self.clone();
            Ok(Box::new(move || {
                guard.run(|| {
                    let result = finish()?;
                    check(&result, &buffer, index)?;
                    Ok(result)
                })
            }))
        }
    }

    /// C++ gets the text of an error; the error itself is kept.
    fn run<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<T, String> {
        let error = match catch_unwind(AssertUnwindSafe(part)) {
            Ok(Ok(value)) => return Ok(value),
            // It has been reported to the other ranks.
            Ok(Err(error @ Error::Collective { .. })) => error,
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(panic) => self.failed(&of_panic(&*panic)),
        };
        let text = error.to_string();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        Err(text)
    }

    fn failed(&self, what: &str) -> Error {
        let message = format!("communication hook {}: {what}", self.name);
        self.group.report(&message);
        Error::Collective {
            rank: self.group.job_rank(),
            operation: "backward",
            message,
            blame: None,
        }
    }
}

fn check(result: &Tensor, buffer: &Tensor, index: usize) -> Result<()> {
    let properties = |tensor: &Tensor| (tensor.kind(), tensor.size(), tensor.device());
    if result.defined() && properties(result) == properties(buffer) {
        return Ok(());
    }
    let describe = |tensor: &Tensor| match tensor.defined() {
        true => format!("{:?} {:?} on {:?}", tensor.kind(), tensor.size(), tensor.device()),
        false => "an undefined tensor".into(),
    };
    Err(Error::Argument {
        what: format!("its result for bucket {index}"),
        found: describe(result),
        expected: format!("{}, as the bucket", describe(buffer)),
    })
}
