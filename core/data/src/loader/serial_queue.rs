//! Jobs for worker threads that run one after the other.

use rayon::ThreadPool;
use std::{collections::VecDeque, sync::Arc, sync::Mutex};
use tch_parallel_base::lock;

type Job = Box<dyn FnOnce() + Send>;

/// Runs its jobs in order and one at a time, on whichever thread of a pool is free.
///
/// No thread waits for another. A lock around each job could wait for ever: while a job waits for
/// parts that it has spread over the pool, rayon may start the next job on the same thread.
#[derive(Clone, Default)]
pub(super) struct SerialQueue {
    /// `None` while no job of this queue is running.
    waiting: Arc<Mutex<Option<VecDeque<Job>>>>,
}

impl SerialQueue {
    /// Runs `job`, which must not panic, after all earlier ones.
    pub(super) fn spawn_fifo(self, pool: &ThreadPool, job: impl FnOnce() + Send + 'static) {
        let job = Box::new(job);
        let mut waiting = lock(&self.waiting);
        if let Some(waiting) = &mut *waiting {
            return waiting.push_back(job);
        }
        *waiting = Some(VecDeque::new());
        drop(waiting);
        pool.spawn_fifo(move || self.run(job));
    }

    /// The number of jobs that are not done.
    pub(super) fn len(&self) -> usize {
        lock(&self.waiting).as_ref().map_or(0, |waiting| waiting.len() + 1)
    }

    fn run(&self, mut job: Job) {
        loop {
            job();
            let mut waiting = lock(&self.waiting);
            let Some(next) = waiting.as_mut().and_then(VecDeque::pop_front) else {
                *waiting = None;
                return;
            };
            job = next;
        }
    }
}
