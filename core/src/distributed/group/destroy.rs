//! How a rank leaves a group: `destroy_process_group`.

use super::{device::Backend, place::Place};
use crate::distributed::fault::unfinished::Unfinished;
use crate::distributed::fault::watch::{self, PATIENCE};
use c10d_sys::{ProcessGroup, Store};
use std::time::{Duration, Instant};
use std::{mem, mem::ManuallyDrop, sync::Arc, thread};

/// How long a failed group's operations may take to notice it.
const NOTICE: Duration = Duration::from_secs(1);

const INTERVAL: Duration = Duration::from_millis(1);

/// Leaves a group. Does not wait for other ranks: what is unfinished ends at once if the group has
/// failed, and otherwise when they have done their part, or have gone. The caller drops `engine` next.
pub(crate) fn destroy(
    engine: &ProcessGroup,
    place: Place,
    store: &Arc<Store>,
    unfinished: &Unfinished,
) {
    let has_failed = unfinished.has_failed() || thread::panicking();
    if !has_failed && !unfinished.is_any() {
        if place.world_size > 1 {
            watch::leave(store, place.rank);
        }
        return;
    }
    if place.backend == Backend::Nccl {
        // Its destructor waits for the GPU, which may wait for a rank that never comes.
        return mem::forget(engine.clone());
    }
    // If nothing is in progress here, others may still be reading what came from this rank.
    if has_failed && is_busy(engine) {
        // It can only fail if memory is short; the thread then waits as long as gloo does.
        let _ = engine.fail();
        let deadline = Instant::now() + NOTICE;
        while is_busy(engine) && Instant::now() < deadline {
            thread::sleep(INTERVAL);
        }
    }
    if !is_busy(engine) {
        return;
    }
    // Leaked if there is no memory for a thread.
    let engine = ManuallyDrop::new(engine.clone());
    let _ = thread::Builder::new().name("destroy".into()).spawn(move || {
        let engine = ManuallyDrop::into_inner(engine);
        while is_busy(&engine) {
            if let Ok(Some(_)) = engine.lost_peer(0, PATIENCE) {
                let _ = engine.fail();
                break;
            }
            thread::sleep(watch::INTERVAL);
        }
    });
}

fn is_busy(engine: &ProcessGroup) -> bool {
    // It can only fail if memory is short.
    engine.is_busy().unwrap_or(true)
}
