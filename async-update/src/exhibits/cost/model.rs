//! What an update costs on paper: a message of n bytes takes α + βn seconds.
//!
//! α is the latency and β the time of a byte (Hockney 1994). A rank sends one message and receives
//! one at the same time, and several that arrive at once are taken one after the other; additions
//! cost nothing. K is the size of the model in bytes and N the number of ranks.

use serde::Serialize;

/// What a message costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Link {
    /// Seconds that every message takes, however short it is: α.
    pub latency: f64,
    /// Seconds that each of its bytes adds: β.
    pub per_byte: f64,
}

impl Link {
    // ANCHOR: formulas
    /// Seconds for a message of this size.
    pub fn message(&self, bytes: f64) -> f64 {
        self.latency + self.per_byte * bytes
    }

    /// 2(N − 1)(α + βK): the server receives N − 1 gradients and sends N − 1 models, one after the
    /// other (the article; Gibiansky 2017).
    pub fn parameter_server(&self, ranks: usize, bytes: f64) -> f64 {
        parameter_server_messages(ranks) * self.message(bytes)
    }

    /// 2(N − 1)(α + βK/N): each rank passes on 2(N − 1) chunks (Patarasuk and Yuan 2009; Gibiansky
    /// 2017). The article leaves α out, and so has 2K(N − 1)/N.
    pub fn ring(&self, ranks: usize, bytes: f64) -> f64 {
        2.0 * (ranks as f64 - 1.0) * self.message(bytes / ranks as f64)
    }
    // ANCHOR_END: formulas

    /// 2⌈log₂ N⌉(α + βK): a binomial tree reduces to one rank and broadcasts from it (Thakur,
    /// Rabenseifner and Gropp 2005).
    pub fn tree(&self, ranks: usize, bytes: f64) -> f64 {
        2.0 * f64::from(ranks.next_power_of_two().ilog2()) * self.message(bytes)
    }

    /// 2 log₂(N) α + 2βK(N − 1)/N: halves of what is left are exchanged with ever nearer partners,
    /// and the sums on the way back (Rabenseifner's algorithm; Thakur, Rabenseifner and Gropp 2005).
    ///
    /// Where N is no power of two, ranks beyond one hand over gradients first and get the sum last: 2(α + βK) more.
    pub fn halving_doubling(&self, ranks: usize, bytes: f64) -> f64 {
        let partners = ranks.ilog2();
        let power = 2f64.powi(partners as i32);
        let exchanges = 2.0 * f64::from(partners) * self.latency
            + 2.0 * self.per_byte * bytes * (power - 1.0) / power;
        let rest = if ranks.is_power_of_two() { 0.0 } else { 2.0 * self.message(bytes) };
        exchanges + rest
    }

    /// A ring in each node of g ranks, then rings between nodes for the g parts, then the nodes'
    /// rings again (the 2D-torus all-reduce of Mikami and others 2018):
    /// 2(g − 1)(α + βK/g) + 2(N/g − 1)(α + βK/N). As many bytes as in a ring, in fewer messages.
    ///
    /// One α and one β serve for both kinds of ring, where real nodes have a faster one inside.
    /// `None` if there is more than one node and one of them is not full.
    pub fn hierarchical_ring(&self, ranks: usize, per_node: usize, bytes: f64) -> Option<f64> {
        if ranks <= per_node {
            return Some(self.ring(ranks, bytes));
        }
        if !ranks.is_multiple_of(per_node) {
            return None;
        }
        let (nodes, inside) = ((ranks / per_node) as f64, per_node as f64);
        let in_nodes = 2.0 * (inside - 1.0) * self.message(bytes / inside);
        let between = 2.0 * (nodes - 1.0) * self.message(bytes / ranks as f64);
        Some(in_nodes + between)
    }

    /// By each way: server, ring, tree, halving-doubling, and a hierarchical ring with nodes of `per_node` ranks.
    pub fn predictions(&self, ranks: usize, per_node: usize, bytes: f64) -> [Option<f64>; 5] {
        [
            Some(self.parameter_server(ranks, bytes)),
            Some(self.ring(ranks, bytes)),
            Some(self.tree(ranks, bytes)),
            Some(self.halving_doubling(ranks, bytes)),
            self.hierarchical_ring(ranks, per_node, bytes),
        ]
    }

    /// The smallest N for which the tree is faster than the ring, up to `most`.
    pub fn tree_overtakes_ring(&self, bytes: f64, most: usize) -> Option<usize> {
        (2..=most).find(|&ranks| self.tree(ranks, bytes) < self.ring(ranks, bytes))
    }
}

/// How many messages of K bytes go through the parameter server: 2(N − 1).
pub fn parameter_server_messages(ranks: usize) -> f64 {
    2.0 * (ranks as f64 - 1.0)
}

/// What each rank of a ring sends, in units of K: 2(N − 1)/N.
pub fn ring_traffic(ranks: usize) -> f64 {
    2.0 * (ranks as f64 - 1.0) / ranks as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Larger models stay with the ring for longer, and where only bytes cost the tree never overtakes it.
    #[test]
    fn the_books_picture_is_compared_with_these_costs() {
        let mut report = String::new();
        for (latency, per_byte, bytes) in
            [(3e-5, 1.4e-10, 407_080.0), (2e-5, 1e-10, 1e8), (1e-6, 1e-9, 1e3), (0.0, 1e-9, 1e6)]
        {
            let link = Link { latency, per_byte };
            let overtakes = link.tree_overtakes_ring(bytes, 10_000);
            writeln!(report, "\nlatency={latency} per_byte={per_byte} bytes={bytes} tree_overtakes_ring={overtakes:?}").unwrap();
            for ranks in [2, 3, 8, 12, 64, 1000, 1024, 10_000] {
                writeln!(report, "{ranks} {:?}", link.predictions(ranks, 8, bytes)).unwrap();
            }
        }
        insta::assert_snapshot!(report);
    }
}
