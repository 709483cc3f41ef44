//! How many batches are left to do, and who is doing them.

use std::collections::BTreeMap;

/// The batches of a training, handed out to whoever asks: a fast worker does more of them. What a
/// worker that is gone has not done is handed out again.
#[derive(Debug)]
pub struct Budget {
    left: usize,
    done: usize,
    /// What each worker has been granted and has not reported as done.
    granted: BTreeMap<usize, usize>,
}

impl Budget {
    pub fn new(batches: usize) -> Budget {
        Budget { left: batches, done: 0, granted: BTreeMap::new() }
    }

    /// For a shard that does not decide: grants whatever is asked for.
    pub fn unlimited() -> Budget {
        Budget::new(usize::MAX)
    }

    /// How many of the batches that it wants a worker may do. 0: the training is over for it.
    pub fn grant(&mut self, worker: usize, wanted: usize) -> usize {
        let granted = wanted.min(self.left);
        self.left -= granted;
        *self.granted.entry(worker).or_default() += granted;
        granted
    }

    /// A worker's gradients of so many batches have come.
    pub fn complete(&mut self, worker: usize, batches: usize) {
        self.done += batches;
        if let Some(granted) = self.granted.get_mut(&worker) {
            *granted = granted.saturating_sub(batches);
        }
    }

    /// A worker does no more.
    pub fn give_back(&mut self, worker: usize) {
        self.left += self.granted.remove(&worker).unwrap_or(0);
    }

    /// Whether nothing is left, and nothing can come back from any worker but those of `whom`.
    pub fn is_settled(&self, mut but: impl FnMut(usize) -> bool) -> bool {
        self.left == 0 && self.granted.iter().all(|(&worker, &batches)| batches == 0 || but(worker))
    }

    /// Grants nothing from here on.
    pub fn close(&mut self) {
        self.left = 0;
        self.granted.clear();
    }

    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// The batches whose gradients have come.
    pub fn done(&self) -> usize {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_granted_than_there_is() {
        let mut budget = Budget::new(5);
        assert_eq!(budget.grant(1, 3), 3);
        assert_eq!(budget.grant(2, 3), 2);
        assert_eq!(budget.grant(1, 3), 0);
        assert!(budget.is_used_up());
    }

    #[test]
    fn what_a_lost_worker_has_not_done_is_granted_again() {
        let mut budget = Budget::new(5);
        budget.grant(1, 4);
        budget.complete(1, 1);
        budget.give_back(1);
        assert_eq!(budget.grant(2, 9), 4);
        budget.complete(2, 4);
        assert_eq!(budget.done(), 5);
    }

    #[test]
    fn a_closed_budget_grants_nothing_even_if_something_comes_back() {
        let mut budget = Budget::new(5);
        budget.grant(1, 2);
        budget.close();
        budget.give_back(1);
        assert_eq!(budget.grant(2, 1), 0);
    }
}
