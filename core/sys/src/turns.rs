//! Threads of which one runs at a time.

use crate::lock;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, mpsc};
use std::{cell::Cell, collections::VecDeque, io, rc::Rc, thread};

/// The place of a thread of [`in_turns`] among the others.
pub struct Turn {
    /// Its number.
    pub place: usize,
    /// Shared with the thread, whose turn ends even if this has been dropped or leaked. The `Rc` ties it to the thread.
    seat: Rc<Seat>,
}

struct Seat {
    baton: Cell<Option<Baton>>,
    gets: mpsc::Receiver<Baton>,
}

/// Who holds it runs. The ways to those that have not ended, from its holder on.
struct Baton(VecDeque<mpsc::Sender<Baton>>);

impl Turn {
    /// Lets the next thread run, and returns at this one's next turn.
    pub fn pass(&self) {
        if self.seat.hand_over(true) {
            self.seat.wait();
        }
    }
}

impl Seat {
    /// Whether there is a turn, rather than none any more.
    fn wait(&self) -> bool {
        self.gets.recv().map(|baton| self.baton.set(Some(baton))).is_ok()
    }

    /// Whether there was a turn to end.
    fn hand_over(&self, comes_back: bool) -> bool {
        let Some(mut baton) = self.baton.take() else { return false };
        let own = baton.0.pop_front();
        baton.0.extend(own.filter(|_| comes_back));
        if let Some(next) = baton.0.front().cloned() {
            // It waits for this, so this cannot fail.
            let _ = next.send(baton);
        }
        true
    }
}

/// Runs `body` on `count` threads: the first one until it calls [`Turn::pass`] or ends, then the next, and after the
/// last one the first again. Returns their results in order, or the error or panic of the one that failed first, when
/// all have ended. The outer error is for threads that the system cannot start; then nothing runs.
///
/// `value` need not be `Sync`, because it is handed from one thread to the next, as if it were sent there and back.
pub fn in_turns<T: Send + ?Sized, R: Send, E: Send>(
    value: &T,
    count: usize,
    body: impl Fn(&T, Turn) -> Result<R, E> + Sync,
) -> crate::Result<Result<Vec<R>, E>> {
    struct Lent<'a, T: ?Sized>(&'a T);
    impl<T: ?Sized> Lent<'_, T> {
        fn value(&self) -> &T {
            self.0
        }
    }
    // SAFETY: only who holds the one baton uses it, and a channel orders that after what its last holder has done. If a
    // thread keeps a borrow while it waits, a `RefCell` refuses the others, as it would on one thread. This relies on
    // cells that go by their own state, and not by the thread that asks.
    unsafe impl<T: Send + ?Sized> Sync for Lent<'_, T> {}

    let (lent, failures) = (Lent(value), Mutex::new(Vec::new()));
    let run = |place, gets| {
        let seat = Rc::new(Seat { baton: Cell::new(None), gets });
        if !seat.wait() {
            return None;
        }
        let turn = Turn { place, seat: Rc::clone(&seat) };
        let outcome = catch_unwind(AssertUnwindSafe(|| body(lent.value(), turn)));
        let outcome = outcome.map_err(Err).and_then(|result| result.map_err(Ok));
        // Kept until all have ended, since a drop may panic.
        let result = outcome.map_err(|failure| lock(&failures).push(failure)).ok();
        seat.hand_over(false);
        result
    };
    let run = &run;
    let (to, from): (VecDeque<_>, Vec<_>) = (0..count).map(|_| mpsc::channel()).unzip();
    let results = thread::scope(|scope| {
        let start =
            |(place, gets)| thread::Builder::new().spawn_scoped(scope, move || run(place, gets));
        let threads = from.into_iter().enumerate().map(start).collect::<io::Result<Vec<_>>>();
        // Without all of them the baton is dropped, and nobody waits for it any more.
        let baton = Baton(to);
        let threads = threads?;
        if let Some(first) = baton.0.front().cloned() {
            let _ = first.send(baton);
        }
        let join = |it: thread::ScopedJoinHandle<'_, _>| it.join().ok().flatten();
        Ok::<_, io::Error>(threads.into_iter().filter_map(join).collect())
    });
    match lock(&failures).drain(..).next() {
        Some(Err(panic)) => resume_unwind(panic),
        Some(Ok(error)) => Ok(Err(error)),
        None => results.map(Ok).map_err(|error| format!("cannot start threads: {error}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn one_thread_runs_at_a_time_and_each_in_its_turn() {
        let log = RefCell::new(Vec::new());
        let results = in_turns(&log, 3, |log, turn| {
            for round in 0..=turn.place {
                log.borrow_mut().push((round, turn.place));
                thread::yield_now();
                turn.pass();
            }
            Ok::<_, ()>(turn.place)
        });
        assert_eq!(log.take(), [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]);
        assert_eq!(results, Ok(Ok(vec![0, 1, 2])));
    }

    #[test]
    fn the_first_failure_counts_when_all_have_ended() {
        for panics in [false, true] {
            let ended = RefCell::new(0);
            let all = || {
                in_turns(&ended, 3, |ended, turn| {
                    turn.pass();
                    *ended.borrow_mut() += 1;
                    assert!(!panics || turn.place != 1, "thread 1");
                    if turn.place == 0 { Ok(()) } else { Err(turn.place) }
                })
            };
            match catch_unwind(AssertUnwindSafe(all)) {
                Ok(outcome) => assert_eq!((outcome, panics), (Ok(Err(1)), false)),
                Err(panic) => assert_eq!(panic.downcast_ref(), Some(&"thread 1")),
            }
            assert_eq!(ended.take(), 3);
        }
    }
}
