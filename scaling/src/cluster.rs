//! What an all-reduce costs on a cluster, whose network has two levels: within a host, and between hosts.

use serde::Deserialize;

/// A message of n bytes takes `latency` + n / `bandwidth` seconds.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// In seconds.
    pub latency: f64,
    /// In bytes per second.
    pub bandwidth: f64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// One ring through all ranks, which enters and leaves each host once: gloo, and NCCL before 2.4 or for large
    /// messages on few hosts.
    Ring,
    /// The same bytes in fewer messages, between hosts along a double binary tree: NCCL since 2.4 on many hosts.
    Tree,
    /// First the sum of each host, then halving-doubling between hosts.
    Hierarchical,
    /// Ranks of one host map the same memory: each reads its slice of all tensors and writes the sum into all.
    Memory,
}

#[derive(Debug, Clone, Copy)]
pub struct Cluster {
    pub ranks_per_host: usize,
    /// Of a rank.
    pub inside: Link,
    /// Of a host, which its ranks share.
    pub between: Link,
    pub algorithm: Algorithm,
}

impl Cluster {
    // ANCHOR: all_reduce
    /// Seconds for an all-reduce of `bytes` over this many ranks.
    pub fn all_reduce(&self, ranks: usize, bytes: f64) -> f64 {
        let (n, hosts) = (ranks as f64, ranks.div_ceil(self.ranks_per_host) as f64);
        let Cluster { inside, between, .. } = self;
        // Each of n neighbours in a ring sends 2 (n - 1) chunks of 1 / n.
        let sent = |n: f64| 2.0 * (n - 1.0) / n * bytes;
        let per_host = self.ranks_per_host as f64;
        let levels =
            2.0 * (per_host - 1.0) * inside.latency + 2.0 * hosts.log2().ceil() * between.latency;
        let narrowest = inside.bandwidth.min(between.bandwidth);
        match self.algorithm {
            // The bytes of each rank are those of a ring of two, whatever the number of ranks.
            Algorithm::Memory => 2.0 * inside.latency + sent(2.0) / inside.bandwidth,
            _ if hosts == 1.0 => 2.0 * (n - 1.0) * inside.latency + sent(n) / inside.bandwidth,
            Algorithm::Ring => 2.0 * (n - 1.0) * between.latency + sent(n) / narrowest,
            Algorithm::Tree => levels + sent(n) / narrowest,
            Algorithm::Hierarchical => {
                levels + sent(per_host) / inside.bandwidth + sent(hosts) / between.bandwidth
            }
        }
    }
    // ANCHOR_END: all_reduce
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: Cluster = Cluster {
        ranks_per_host: 4,
        inside: Link { latency: 1.0, bandwidth: 16.0 },
        between: Link { latency: 10.0, bandwidth: 2.0 },
        algorithm: Algorithm::Ring,
    };

    #[test]
    fn the_costs_are_those_of_the_formulas() {
        let cost = |algorithm, ranks| Cluster { algorithm, ..CLUSTER }.all_reduce(ranks, 64.0);
        for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::Hierarchical] {
            assert_eq!(cost(algorithm, 1), 0.0);
            // 6 messages of 16 bytes.
            assert_eq!(cost(algorithm, 4), 6.0 + 6.0);
        }
        assert_eq!(cost(Algorithm::Memory, 4), 2.0 + 64.0 / 16.0);
        assert_eq!(cost(Algorithm::Ring, 16), 30.0 * 10.0 + 120.0 / 2.0);
        assert_eq!(cost(Algorithm::Tree, 16), 6.0 + 4.0 * 10.0 + 120.0 / 2.0);
        assert_eq!(cost(Algorithm::Hierarchical, 16), 6.0 + 4.0 * 10.0 + 96.0 / 16.0 + 96.0 / 2.0);
    }
}
