//! The memory order of the shared-memory exchange, which x86-64 would hide: a model of csrc/shared_memory whose every
//! execution loom tries, with the orders that the C++ has, and with each of them weakened in turn.
//!
//! loom has a single order of sequentially consistent fences, but not of other operations. So the C++ uses fences.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::{cell::UnsafeCell, model::Builder, sync::Arc, sync::Condvar, sync::Mutex, thread};
use std::{env, process::Command};

use Ordering::{Acquire, Relaxed, Release, SeqCst};

/// How often an execution may switch to another rank that it need not switch to.
const PREEMPTIONS: usize = 3;

/// The orders in board.hpp and exchange.cpp.
#[derive(Debug, Clone, Copy)]
struct Orders {
    /// `Cell::publish`
    publish: Ordering,
    /// `Cell::has_reached`
    see: Ordering,
    /// `Cell::publish`, between the number and the look at the sleepers.
    fence_before_waking: Ordering,
    /// `Cell::sleep`, between the sleepers and the number.
    fence_before_sleeping: Ordering,
    /// `Exchange::end`
    fail: Ordering,
    /// `Exchange::check_own_state` and `Exchange::check_state`
    look: Ordering,
    /// `Exchange::record` and `Exchange::compare`
    record: Ordering,
    compare: Ordering,
}

const RIGHT: Orders = Orders {
    publish: Release,
    see: Acquire,
    fence_before_waking: SeqCst,
    fence_before_sleeping: SeqCst,
    fail: Release,
    look: Acquire,
    record: Release,
    compare: Acquire,
};

/// Values in shared memory that are not atomic.
#[derive(Default)]
struct Data(UnsafeCell<u32>);

// SAFETY: loom fails the test if two threads use it at once.
unsafe impl Sync for Data {}

impl Data {
    fn write(&self, value: u32) {
        // SAFETY: as above.
        self.0.with_mut(|data| unsafe { *data = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|data| unsafe { *data })
    }
}

/// A number that one rank publishes, without those who sleep.
#[derive(Default)]
struct Cell(AtomicU32);

impl Cell {
    fn publish(&self, next: u32, orders: Orders) {
        self.0.store(next, orders.publish);
    }

    fn wait(&self, awaited: u32, orders: Orders) {
        while self.0.load(orders.see) < awaited {
            thread::yield_now();
        }
    }
}

/// What a rank shares, with one staging buffer instead of four.
#[derive(Default)]
struct Board {
    arrived: Cell,
    reduced: Cell,
    done: Cell,
    staging: Data,
}

/// Two ranks add up what both have staged, round after round. The first reduces, as each does its slice.
fn rounds(orders: Orders) {
    let boards = Arc::new([(); 2].map(|()| Board::default()));
    let rank = move |own: usize, boards: Arc<[Board; 2]>| {
        let (mine, other) = (&boards[own], &boards[1 - own]);
        for round in 0..2 {
            // wait_for_staging
            other.done.wait(round, orders);
            mine.staging.write(10 * round + own as u32 + 1);
            mine.arrived.publish(round + 1, orders);
            other.arrived.wait(round + 1, orders);
            let sum = 20 * round + 3;
            if own == 0 {
                mine.staging.write(mine.staging.read() + other.staging.read());
                mine.reduced.publish(round + 1, orders);
            } else {
                other.reduced.wait(round + 1, orders);
                assert_eq!(other.staging.read(), sum);
            }
            mine.done.publish(round + 1, orders);
        }
    };
    let theirs = boards.clone();
    let second = thread::spawn(move || rank(1, theirs));
    rank(0, boards);
    second.join().unwrap();
}

/// A number with sleepers, and the kernel's queue of them.
#[derive(Default)]
struct Futex {
    value: AtomicU32,
    sleepers: AtomicU32,
    queue: Mutex<()>,
    awake: Condvar,
}

/// One rank publishes a number, and another sleeps until it does.
fn waking(orders: Orders) {
    let futex = Arc::new(Futex::default());
    let sleeper = futex.clone();
    let sleeping = thread::spawn(move || {
        let Futex { value, sleepers, queue, awake } = &*sleeper;
        while value.load(orders.see) == 0 {
            sleepers.fetch_add(1, Relaxed);
            fence(orders.fence_before_sleeping);
            // FUTEX_WAIT looks at the number with the queue locked.
            let locked = queue.lock().unwrap();
            if value.load(Relaxed) == 0 {
                drop(awake.wait(locked).unwrap());
            }
            sleepers.fetch_sub(1, Relaxed);
        }
    });
    futex.value.store(1, orders.publish);
    fence(orders.fence_before_waking);
    if futex.sleepers.load(Relaxed) != 0 {
        drop(futex.queue.lock().unwrap());
        futex.awake.notify_all();
    }
    sleeping.join().unwrap();
}

const WELL: u32 = 0;
const WRITING: u32 = 1;
const FAILED: u32 = 2;

#[derive(Default)]
struct Failure {
    state: AtomicU32,
    why: Data,
}

/// Two threads of a rank fail, each for its own reason, while another rank looks.
fn failing(orders: Orders) {
    let board = Arc::new(Failure::default());
    let end = move |board: &Failure, why| {
        if board.state.compare_exchange(WELL, WRITING, Relaxed, Relaxed).is_ok() {
            board.why.write(why);
            board.state.store(FAILED, orders.fail);
        }
        // check_own_state
        while board.state.load(orders.look) != FAILED {
            thread::yield_now();
        }
        assert_ne!(board.why.read(), 0);
    };
    let [watcher, failing] = [board.clone(), board.clone()];
    let first = thread::spawn(move || end(&failing, 1));
    let second = thread::spawn(move || {
        if watcher.state.load(orders.look) == FAILED {
            assert_ne!(watcher.why.read(), 0);
        }
    });
    end(&board, 2);
    first.join().unwrap();
    second.join().unwrap();
}

#[derive(Default)]
struct Entry {
    sequence: AtomicU32,
    what: AtomicU32,
    count: AtomicU32,
}

/// A rank records operations at one place of its log, the second over the first, while another compares.
fn recording(orders: Orders) {
    const BEING_WRITTEN: u32 = u32::MAX;
    let entry = Arc::new(Entry::default());
    let log = entry.clone();
    let reader = thread::spawn(move || {
        for number in 1..3 {
            if log.sequence.load(orders.compare) != number {
                continue;
            }
            let (what, count) = (log.what.load(orders.compare), log.count.load(orders.compare));
            let was_overwritten = log.sequence.load(orders.compare) != number;
            assert!(was_overwritten || (what, count) == (number, number));
        }
    });
    for number in 1..3 {
        entry.sequence.store(BEING_WRITTEN, orders.record);
        entry.what.store(number, orders.record);
        entry.count.store(number, orders.record);
        entry.sequence.store(number, orders.record);
    }
    reader.join().unwrap();
}

type Model = fn(Orders);

const MODELS: [Model; 4] = [rounds, waking, failing, recording];

/// The model that finds each weaker order. Acquire is weaker than what a fence needs.
const WEAKER: [(Model, Orders); 8] = [
    (rounds, Orders { publish: Relaxed, ..RIGHT }),
    (rounds, Orders { see: Relaxed, ..RIGHT }),
    (waking, Orders { fence_before_waking: Acquire, ..RIGHT }),
    (waking, Orders { fence_before_sleeping: Acquire, ..RIGHT }),
    (failing, Orders { fail: Relaxed, ..RIGHT }),
    (failing, Orders { look: Relaxed, ..RIGHT }),
    (recording, Orders { record: Relaxed, ..RIGHT }),
    (recording, Orders { compare: Relaxed, ..RIGHT }),
];

/// Tells a process of this test which case it tries.
const CASE: &str = "MEMORY_ORDER_CASE";

/// Each case has a process, which loom ends if the ranks wait for each other for ever.
#[test]
fn every_order_of_the_exchange_is_enough_and_none_weaker_is() {
    let right = MODELS.map(|model| (model, RIGHT));
    let cases = [&right[..], &WEAKER[..]].concat();
    if let Ok(case) = env::var(CASE) {
        let (model, orders) = cases[case.parse::<usize>().unwrap()];
        let mut builder = Builder::new();
        builder.preemption_bound = Some(PREEMPTIONS);
        return builder.check(move || model(orders));
    }
    for (case, (_, orders)) in cases.iter().enumerate() {
        let mut tried = Command::new(env::current_exe().unwrap());
        tried.args(["--exact", "every_order_of_the_exchange_is_enough_and_none_weaker_is"]);
        let tried = tried.env(CASE, case.to_string()).output().unwrap();
        let output = String::from_utf8_lossy(&tried.stdout);
        assert_eq!(tried.status.success(), case < MODELS.len(), "{case}: {orders:?}\n{output}");
    }
}
