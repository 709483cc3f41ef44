//! What a rank that fails leaves behind: the reason, for its launcher and for the other ranks.

use super::first_fault::{self, Fault};
use super::in_time::{ANSWER, until};
use super::{post_mortem::PostMortem, unfinished::Unfinished};
use serde_json::json;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tch_parallel_base::error::{of_panic, with_causes};
use tch_parallel_base::{file_size_limit, lock};
use tch_parallel_contract::CULPRIT;

/// Runs a program's `main`. If that returns an error or panics, leaves the reason where launchers
/// look for it, in the file that `TORCHELASTIC_ERROR_FILE` names, and tells the other ranks, before
/// it returns the error or goes on panicking. `torch.distributed.elastic.multiprocessing.errors.record`
///
/// The launcher then names the rank at fault with the reason, and so do the ranks that lose their connection to this
/// one. If this rank only fails because of another one, its file says so. Until the others know it, this call keeps
/// rank 0's store, for at most a second. Use it once per process, around everything that makes a [`ProcessGroup`].
///
/// From then on, a write beyond the limit on file sizes (`ulimit -f`) is an error. By default, it ends the process.
///
/// ```
/// use std::error::Error;
/// use tch_parallel::distributed::{ProcessGroup, record};
///
/// fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
///     record(train)
/// }
///
/// fn train() -> tch_parallel::Result<()> {
///     let group = ProcessGroup::from_env()?;
///     group.barrier()
/// }
/// ```
///
/// [`ProcessGroup`]: crate::distributed::ProcessGroup
pub fn record<T, E>(main: impl FnOnce() -> Result<T, E>) -> Result<T, Box<dyn Error + Send + Sync>>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    file_size_limit::is_an_error();
    lock(&RECORDING).get_or_insert_with(|| {
        first_fault::take();
        Vec::new()
    });
    // Nothing that `main` used is used again.
    let outcome = catch_unwind(AssertUnwindSafe(main)).map(|result| result.map_err(Into::into));
    let groups = lock(&RECORDING).take().unwrap_or_default();
    let fault = first_fault::take();
    let reason = match &outcome {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(with_causes(&**error)),
        Err(panic) => Some(format!("panicked: {}", of_panic(&**panic))),
    };
    if let Some(reason) = reason {
        // The file comes first: the launcher takes the rank with the earliest reason for the culprit.
        if let Some(path) = std::env::var_os("TORCHELASTIC_ERROR_FILE") {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            // If it cannot be written, the launcher still has what this rank prints.
            let _ = std::fs::write(path, error_file(&reason, fault.as_ref(), now));
        }
        let post_mortems = || groups.iter().map(|group| &group.post_mortem);
        let deadline = Instant::now() + STAY;
        if let Some(Fault::Another(_)) = fault {
            post_mortems().for_each(|p| p.let_the_culprit_end_first(deadline));
        } else {
            post_mortems().for_each(|p| p.report(&reason, ANSWER.min(until(deadline))));
            post_mortems().for_each(|p| p.let_the_others_look(deadline));
        }
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic))
}

/// How long a rank that fails stays for the others, whatever the number of its groups.
const STAY: Duration = Duration::from_secs(1);

/// What is needed of a group to tell its ranks why this one ends, after the group was dropped with `main`'s variables.
struct RecordedGroup {
    /// Gone with the group.
    unfinished: Weak<Unfinished>,
    post_mortem: Arc<PostMortem>,
    /// On rank 0, it serves the store.
    _store: Arc<c10d_sys::Store>,
}

/// The groups that were made inside [`record`]; `None` outside of it.
static RECORDING: Mutex<Option<Vec<RecordedGroup>>> = Mutex::new(None);

/// Remembers a new group. `store` is this process's first connection.
pub(crate) fn remember_group(
    unfinished: &Arc<Unfinished>,
    post_mortem: &Arc<PostMortem>,
    store: &Arc<c10d_sys::Store>,
) {
    forget_dropped_groups();
    if let Some(groups) = &mut *lock(&RECORDING) {
        groups.push(RecordedGroup {
            unfinished: Arc::downgrade(unfinished),
            post_mortem: Arc::clone(post_mortem),
            _store: Arc::clone(store),
        });
    }
}

/// A program that goes on to make a group or a store has not failed in or because of the groups that it dropped.
pub(crate) fn forget_dropped_groups() {
    if let Some(groups) = &mut *lock(&RECORDING)
        && !one_left_has_failed(groups)
    {
        first_fault::take();
    }
}

/// Removes the groups that are dropped, and returns whether one of the others has failed.
fn one_left_has_failed(groups: &mut Vec<RecordedGroup>) -> bool {
    groups.retain(|group| group.unfinished.strong_count() > 0);
    groups.iter().filter_map(|group| group.unfinished.upgrade()).any(|it| it.has_failed())
}

/// The contents of the file, in torchrun's format. Only `culprit` is not torchrun's.
fn error_file(reason: &str, fault: Option<&Fault>, now: Duration) -> String {
    let mut extra_info = json!({ "py_callstack": reason, "timestamp": now.as_secs().to_string() });
    if let Some(Fault::Another(culprit)) = fault {
        // Null if it could not be found.
        extra_info[CULPRIT] = json!(culprit);
        // torchrun blames the rank with the earliest second, and in the same second the lowest rank.
        extra_info["timestamp"] = json!((now.as_secs() + 1).to_string());
    }
    json!({ "message": { "message": reason, "extraInfo": extra_info } }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn read(fault: Option<Fault>) -> Value {
        let now = Duration::from_millis(1_700_000_000_400);
        serde_json::from_str(&error_file("no \"data\"", fault.as_ref(), now)).unwrap()
    }

    #[test]
    fn a_fault_of_its_own_is_written_as_python_does() {
        for fault in [None, Some(Fault::Own)] {
            let extra_info = json!({ "py_callstack": "no \"data\"", "timestamp": "1700000000" });
            let message = json!({ "message": "no \"data\"", "extraInfo": extra_info });
            assert_eq!(read(fault), json!({ "message": message }));
        }
    }

    #[test]
    fn what_ended_a_group_is_forgotten_with_it() {
        let store = Arc::new(c10d_sys::Store::hash().unwrap());
        let post_mortem = Arc::new(PostMortem::new(Arc::clone(&store), 0, 1, Vec::new(), false));
        let (lasting, failed) = (Arc::new(Unfinished::default()), Arc::new(Unfinished::default()));
        let mut groups: Vec<_> = [&lasting, &failed]
            .map(|unfinished| RecordedGroup {
                unfinished: Arc::downgrade(unfinished),
                post_mortem: Arc::clone(&post_mortem),
                _store: Arc::clone(&store),
            })
            .into();
        failed.set_failed();
        assert!(one_left_has_failed(&mut groups));
        drop(failed);
        assert!(!one_left_has_failed(&mut groups) && groups.len() == 1);
    }

    #[test]
    fn a_victim_names_its_culprit_and_counts_as_later() {
        let written = read(Some(Fault::Another(Some("rank 2 has ended".into()))));
        let extra_info = &written["message"]["extraInfo"];
        assert_eq!(extra_info["culprit"], "rank 2 has ended");
        assert_eq!(extra_info["timestamp"], "1700000001");
    }
}
