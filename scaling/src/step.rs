//! A step of DistributedDataParallel, simulated: computing, waiting for the latest rank, exchanging.

use crate::{cluster::Cluster, model::Bucket};

/// The part of a step's computing that is the backward pass: twice the work of the forward pass.
const BACKWARD: f64 = 2.0 / 3.0;

/// What each rank does in a step.
pub struct Work<'a> {
    /// Seconds of computing, by a single rank that waits for nobody.
    pub compute: f64,
    pub buckets: &'a [Bucket],
    pub cluster: &'a Cluster,
    /// The mean delay of a rank, as a part of `compute`.
    pub delay: f64,
}

/// Where the time of a step goes, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub compute: f64,
    /// Until the latest rank has computed.
    pub late: f64,
    /// The part of the exchange that is not hidden behind the backward pass.
    pub exposed: f64,
}

impl Step {
    pub fn total(&self) -> f64 {
        self.compute + self.late + self.exposed
    }

    /// The part of the time for which a rank computes.
    pub fn efficiency(&self) -> f64 {
        self.compute / self.total()
    }
}

// ANCHOR: step
/// The steps of this many ranks.
pub fn step(work: &Work<'_>, ranks: usize) -> Step {
    let Work { compute, buckets, cluster, .. } = *work;
    let late = compute * work.delay * (harmonic(ranks) - 1.0);
    let backward = BACKWARD * compute;
    let begin = compute - backward + late;
    let mut free = 0.0;
    // A bucket is exchanged when it is complete on the latest rank and the one before it is done.
    for bucket in buckets {
        let ready = begin + backward * bucket.ready;
        free = ready.max(free) + cluster.all_reduce(ranks, bucket.bytes);
    }
    Step { compute, late, exposed: (free - compute - late).max(0.0) }
}

/// 1 + 1/2 + … + 1/n: the mean of the longest of n delays, if they are exponential with mean 1.
fn harmonic(n: usize) -> f64 {
    (1..=n).map(|i| 1.0 / i as f64).sum()
}
// ANCHOR_END: step

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Algorithm, Link};

    const LINK: Link = Link { latency: 0.0, bandwidth: 1.0 };
    const CLUSTER: Cluster =
        Cluster { ranks_per_host: 2, inside: LINK, between: LINK, algorithm: Algorithm::Ring };

    fn of_two(buckets: &[Bucket], delay: f64) -> Step {
        step(&Work { compute: 3.0, buckets, cluster: &CLUSTER, delay }, 2)
    }

    #[test]
    fn an_exchange_is_hidden_until_the_backward_pass_ends() {
        // 1 second of exchange, which begins after 1 + 1 and after 1 + 2 seconds.
        assert_eq!(of_two(&[Bucket { bytes: 1.0, ready: 0.5 }], 0.0).exposed, 0.0);
        assert_eq!(of_two(&[Bucket { bytes: 1.0, ready: 1.0 }], 0.0).exposed, 1.0);
        // The second waits for the first, from 2 to 4.
        let two = [Bucket { bytes: 2.0, ready: 0.5 }, Bucket { bytes: 1.0, ready: 1.0 }];
        assert_eq!(of_two(&two, 0.0).exposed, 2.0);
    }

    #[test]
    fn all_wait_for_the_latest() {
        // The longer of two exponential delays is 1.5 means, one of which a single rank has too.
        let step = of_two(&[], 0.2);
        assert!((step.late - 0.3).abs() < 1e-12, "{step:?}");
        assert!((step.efficiency() - 3.0 / 3.3).abs() < 1e-12);
    }
}
