//! How the engine calls a hook, and how its failures are reported.

use super::{CommHook, GradBucket};
use crate::distributed::{ProcessGroup, fault::blame::failed_collective};
use crate::{Error, Result};
use c10d_sys::Reducer;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use tch::{Device, Kind, Tensor};
use tch_parallel_base::{error::of_panic, lock};

/// The original error of a hook: the engine returns only its text.
pub(in crate::distributed) type Failure = Arc<Mutex<Option<Error>>>;

/// Makes `hook` exchange the gradients, before the first forward pass. Its results are of `kind`, if not
/// of the bucket's. Returns where its failures are kept.
pub(in crate::distributed) fn register(
    mut hook: Box<dyn CommHook>,
    kind: Option<Kind>,
    reducer: &mut Reducer,
    group: &ProcessGroup,
) -> Result<Failure> {
    let failure = Failure::default();
    let name = hook.name();
    let guard = Guard { name: name.clone(), group: group.clone(), failure: Arc::clone(&failure) };
    let registered = reducer.register_comm_hook(&name, move |bucket| {
        let index = bucket.index();
        let (buffer, finish) = guard.run(|| {
            let mut bucket = GradBucket { engine: bucket };
            Ok((bucket.buffer()?, hook.start(&guard.group, &mut bucket)?))
        })?;
        let guard = guard.clone();
        Ok(Box::new(move || {
            guard.run(|| {
                let result = finish()?;
                check(&result, kind, &buffer, index)?;
                Ok(result)
            })
        }))
    });
    registered.map_err(|error| group.failed("DistributedDataParallel::new", &error))?;
    Ok(failure)
}

/// Runs a hook and keeps its failures.
#[derive(Clone)]
struct Guard {
    name: String,
    group: ProcessGroup,
    failure: Failure,
}

impl Guard {
    /// C++ gets the text of an error; the error itself is kept.
    fn run<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<T, c10d_sys::Error> {
        let error = match catch_unwind(AssertUnwindSafe(part)) {
            Ok(Ok(value)) => return Ok(value),
            // It has been reported to the other ranks.
            Ok(Err(error @ Error::Collective { .. })) => error,
            Ok(Err(error)) => self.failed(&error.to_string()),
            Err(panic) => self.failed(&of_panic(&*panic)),
        };
        let text = error.to_string();
        *lock(&self.failure) = Some(error);
        Err(text.into())
    }

    fn failed(&self, what: &str) -> Error {
        let message = format!("communication hook {}: {what}", self.name);
        self.group.report(&message);
        failed_collective(self.group.job_rank(), "backward", message, None)
    }
}

fn check(result: &Tensor, kind: Option<Kind>, buffer: &Tensor, index: usize) -> Result<()> {
    let properties = |tensor: &Tensor| (tensor.kind(), tensor.size(), tensor.device());
    let (own_kind, size, device) = properties(buffer);
    let expected = (kind.unwrap_or(own_kind), size, device);
    let found = result.defined().then(|| properties(result));
    if found.as_ref() == Some(&expected) {
        return Ok(());
    }
    let describe =
        |(kind, size, device): (Kind, Vec<i64>, Device)| format!("{kind:?} {size:?} on {device:?}");
    let found = found.map_or("an undefined tensor".into(), describe);
    let expected = format!("{}, as the bucket", describe(expected));
    Err(Error::argument(format!("its result for bucket {index}"), found, expected))
}
