//! How far a worker may run ahead of the others.

/// Decides whether a worker may read θ, and so begin its next step. A worker's clock counts the
/// updates that it has made.
///
/// With `Stale(S)` and P workers, at most (2S + 1)(P − 1) updates of others come between a worker's
/// read and its next update, if it reads before every batch. Let its clock be c at the read. The
/// gate lets it read only if every other worker's clock is at least c − S by then. Until its update
/// its clock stays c, so another worker begins its last step at a clock of c + S at most, and ends it
/// with c + S + 1. That makes (c + S + 1) − (c − S) = 2S + 1 updates of each of the P − 1 others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// As far as it can: Downpour (Dean 2012).
    Free,
    /// By this number of updates: stale synchronous parallel (Ho 2013). With 0 all take their steps together.
    Stale(usize),
    /// To the next multiple of this number of updates, where it waits for all others: the article's
    /// synchronous update every few.
    Every(usize),
}

impl Gate {
    // ANCHOR: is_open
    /// Whether a worker may read whose clock is `clock`, when the slowest worker's is `slowest`.
    pub fn is_open(self, clock: usize, slowest: usize) -> bool {
        match self {
            Gate::Free => true,
            Gate::Stale(lead) => clock <= slowest + lead,
            Gate::Every(period) => slowest >= clock - clock % period,
        }
    }
    // ANCHOR_END: is_open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_may_be_ahead_by_as_much_as_the_gate_says() {
        for (gate, slowest, open) in [
            (Gate::Free, 3, 3..13),
            (Gate::Stale(0), 3, 3..4),
            (Gate::Stale(2), 3, 3..6),
            (Gate::Every(4), 3, 3..4),
            (Gate::Every(4), 4, 4..8),
            (Gate::Every(4), 6, 6..8),
            (Gate::Every(1), 6, 6..7),
        ] {
            let clocks = (slowest..slowest + 10).filter(|&clock| gate.is_open(clock, slowest));
            assert!(clocks.eq(open), "{gate:?} at {slowest}");
        }
    }
}
