//! The workers that take part, how far each of them is, and the batches that are left for them.

use super::gate::Gate;
use std::collections::BTreeMap;

/// Those that take part now. Batches are handed out to whoever asks, so a fast worker does more of
/// them; what a worker that is lost has not done is handed out again.
pub struct Workers {
    /// By rank.
    present: BTreeMap<usize, Worker>,
    /// Batches that have not been handed out.
    left: usize,
    /// Batches whose gradients have come.
    pub done: usize,
}

#[derive(Default)]
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
    /// Batches that it has been granted and has not reported as done.
    granted: usize,
}

impl Workers {
    /// Nobody yet, for this number of batches.
    pub fn new(batches: usize) -> Workers {
        Workers { present: BTreeMap::new(), left: batches, done: 0 }
    }

    /// A worker comes. Its clock begins with that of the slowest: the others do not wait for what
    /// was done before it came.
    pub fn join(&mut self, rank: usize) {
        let clock = self.slowest();
        self.present.insert(rank, Worker { clock, ..Worker::default() });
    }

    /// A worker goes, well or not. Nobody waits for it any more, and others do what it has not done.
    pub fn leave(&mut self, rank: usize) {
        self.left += self.present.remove(&rank).map_or(0, |worker| worker.granted);
    }

    fn worker(&mut self, rank: usize) -> &mut Worker {
        self.present.entry(rank).or_default()
    }

    /// A worker asks for batches. Returns whether it gets an answer now, or must wait: for slower
    /// workers, or until no batch can come back from a worker that is lost.
    pub fn ask(&mut self, rank: usize, gate: Gate) -> bool {
        self.worker(rank).waits = true;
        if self.left > 0 {
            return gate.is_open(self.worker(rank).clock, self.slowest());
        }
        // Others that wait will send what they hold back when they are told that nothing is left.
        self.present.values().all(|worker| worker.granted == 0 || worker.waits)
    }

    /// Returns how many of the `wanted` batches a worker may do. 0 if nothing is left.
    pub fn grant(&mut self, rank: usize, wanted: usize) -> usize {
        let granted = wanted.min(self.left);
        self.left -= granted;
        let worker = self.worker(rank);
        worker.waits = false;
        worker.granted += granted;
        granted
    }

    /// A worker has read θ, which leads to a gradient. Returns its clock.
    pub fn read(&mut self, rank: usize) -> usize {
        let worker = self.worker(rank);
        if !worker.owes {
            worker.unseen = 0;
        }
        worker.owes = true;
        worker.clock
    }

    /// A worker makes an update after this number of batches. Returns its clock before the update,
    /// and how many updates of others it has missed.
    pub fn update(&mut self, rank: usize, batches: usize) -> (usize, usize) {
        self.done += batches;
        let others = self.present.iter_mut().filter(|(other, _)| **other != rank);
        others.for_each(|(_, worker)| worker.unseen += 1);
        let worker = self.worker(rank);
        worker.owes = false;
        worker.granted = worker.granted.saturating_sub(batches);
        worker.clock += 1;
        (worker.clock - 1, worker.unseen)
    }

    /// A worker has learnt with its update where θ stands.
    pub fn has_seen(&mut self, rank: usize) {
        self.worker(rank).unseen = 0;
    }

    /// The clock of the slowest worker; 0 without any.
    pub fn slowest(&self) -> usize {
        self.present.values().map(|worker| worker.clock).min().unwrap_or(0)
    }

    /// How many workers take part now.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether all batches are done and the last worker has gone.
    pub fn are_through(&self) -> bool {
        self.left == 0 && self.present.is_empty()
    }

    /// Grants nothing from here on.
    pub fn close(&mut self) {
        self.left = 0;
        self.present.values_mut().for_each(|worker| worker.granted = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(ranks: &[usize], batches: usize) -> Workers {
        let mut workers = Workers::new(batches);
        ranks.iter().for_each(|&rank| workers.join(rank));
        workers
    }

    #[test]
    fn an_update_makes_the_others_staler() {
        let mut workers = workers(&[1, 2], 9);
        workers.read(1);
        workers.read(2);
        assert_eq!(workers.update(2, 1), (0, 0));
        assert_eq!(workers.update(2, 1), (1, 0));
        assert_eq!(workers.update(1, 1), (0, 2));
    }

    #[test]
    fn with_several_reads_before_an_update_the_first_counts() {
        let mut workers = workers(&[1, 2], 9);
        workers.read(1);
        workers.update(2, 1);
        workers.read(1);
        assert_eq!(workers.update(1, 1), (0, 1));
        workers.read(1);
        assert_eq!(workers.update(1, 1), (1, 0));
    }

    #[test]
    fn who_comes_late_begins_where_the_slowest_stands() {
        let mut workers = workers(&[1, 2], 9);
        for rank in [1, 2, 1] {
            workers.update(rank, 1);
        }
        workers.join(3);
        assert_eq!(workers.read(3), 1);
        workers.leave(2);
        assert_eq!(workers.slowest(), 1);
    }

    #[test]
    fn no_more_is_granted_than_there_is() {
        let mut workers = workers(&[1, 2], 5);
        assert_eq!(workers.grant(1, 3), 3);
        assert_eq!(workers.grant(2, 3), 2);
        assert_eq!(workers.grant(1, 3), 0);
    }

    #[test]
    fn what_a_lost_worker_has_not_done_is_granted_again() {
        let mut workers = workers(&[1, 2], 5);
        workers.grant(1, 4);
        workers.update(1, 1);
        workers.leave(1);
        assert_eq!(workers.grant(2, 9), 4);
        workers.update(2, 4);
        assert_eq!(workers.done, 5);
    }

    #[test]
    fn after_the_end_nothing_is_granted_even_if_something_comes_back() {
        let mut workers = workers(&[1, 2], 5);
        workers.grant(1, 2);
        workers.close();
        workers.leave(1);
        assert_eq!(workers.grant(2, 1), 0);
    }
}
