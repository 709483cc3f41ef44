//! The workers that take part, and how far each of them is.

use std::collections::BTreeMap;

/// Those that take part now, by rank.
#[derive(Debug, Default)]
pub struct Roster(BTreeMap<usize, Worker>);

#[derive(Debug)]
struct Worker {
    /// How many updates it has made.
    clock: usize,
    /// How many updates the others have made since it read, and since the first of its reads of which
    /// the gradient has not come yet.
    unseen: usize,
    /// Whether it has read since its last update.
    owes: bool,
    /// Whether it waits for an answer.
    waits: bool,
}

impl Roster {
    /// A worker comes. Its clock begins with that of the slowest: the others do not wait for what
    /// was done before it came.
    pub fn join(&mut self, worker: usize) {
        let clock = self.slowest();
        self.0.insert(worker, Worker { clock, unseen: 0, owes: false, waits: false });
    }

    /// A worker goes. Nobody waits for it any more.
    pub fn leave(&mut self, worker: usize) {
        self.0.remove(&worker);
    }

    /// A worker waits for an answer from here on, until it [`goes_on`](Self::goes_on). Gives its
    /// clock; `None` if it does not take part.
    pub fn waits(&mut self, worker: usize) -> Option<usize> {
        let worker = self.0.get_mut(&worker)?;
        worker.waits = true;
        Some(worker.clock)
    }

    /// A worker has its answer.
    pub fn goes_on(&mut self, worker: usize) {
        if let Some(worker) = self.0.get_mut(&worker) {
            worker.waits = false;
        }
    }

    pub fn is_waiting(&self, worker: usize) -> bool {
        self.0.get(&worker).is_some_and(|worker| worker.waits)
    }

    /// A worker has read, which leads to a gradient. Gives its clock.
    pub fn read(&mut self, worker: usize) -> usize {
        let Some(worker) = self.0.get_mut(&worker) else { return 0 };
        if !worker.owes {
            worker.unseen = 0;
        }
        worker.owes = true;
        worker.clock
    }

    /// A worker makes an update. Gives its clock before that, and how many updates of others its
    /// gradient has missed.
    pub fn update(&mut self, worker: usize) -> (usize, usize) {
        let mut before = (0, 0);
        for (&rank, state) in &mut self.0 {
            if rank == worker {
                before = (state.clock, state.unseen);
                state.clock += 1;
                state.owes = false;
            } else {
                state.unseen += 1;
            }
        }
        before
    }

    /// A worker has learnt with its update where θ stands.
    pub fn has_seen(&mut self, worker: usize) {
        if let Some(worker) = self.0.get_mut(&worker) {
            worker.unseen = 0;
        }
    }

    /// The clock of the slowest worker; 0 without any.
    pub fn slowest(&self) -> usize {
        self.0.values().map(|worker| worker.clock).min().unwrap_or(0)
    }

    /// How many workers take part now.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(workers: &[usize]) -> Roster {
        let mut roster = Roster::default();
        workers.iter().for_each(|&worker| roster.join(worker));
        roster
    }

    #[test]
    fn an_update_makes_the_others_staler() {
        let mut roster = roster(&[1, 2]);
        roster.read(1);
        roster.read(2);
        assert_eq!(roster.update(2), (0, 0));
        assert_eq!(roster.update(2), (1, 0));
        assert_eq!(roster.update(1), (0, 2));
    }

    #[test]
    fn with_several_reads_before_an_update_the_first_counts() {
        let mut roster = roster(&[1, 2]);
        roster.read(1);
        roster.update(2);
        roster.read(1);
        assert_eq!(roster.update(1), (0, 1));
        roster.read(1);
        assert_eq!(roster.update(1), (1, 0));
    }

    #[test]
    fn who_comes_late_begins_where_the_slowest_stands() {
        let mut roster = roster(&[1, 2]);
        for worker in [1, 2, 1] {
            roster.update(worker);
        }
        roster.join(3);
        assert_eq!(roster.waits(3), Some(1));
        roster.leave(2);
        assert_eq!(roster.slowest(), 1);
    }
}
