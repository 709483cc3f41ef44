//! What a step computes, and in which order its gradients become complete.

/// A network, its last layers first.
pub struct Network {
    pub name: &'static str,
    /// Gflop of a sample, in both passes.
    operations: f64,
    layers: Layers,
}

/// Layers that follow each other in the backward pass: millions of parameters, the part of the backward pass that they
/// take, and the number of tensors.
type Layers = &'static [(f64, f64, u32)];

/// Gradients that are exchanged together.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    pub bytes: f64,
    /// The part of the backward pass after which they are complete.
    pub ready: f64,
}

const MIB: f64 = (1 << 20) as f64;

impl Network {
    pub fn parameters(&self) -> f64 {
        self.layers.iter().map(|(millions, ..)| 1e6 * millions).sum()
    }

    /// What a rank computes for `samples` samples, at `per_second` useful operations per second.
    pub fn seconds(&self, samples: f64, per_second: f64) -> f64 {
        1e9 * self.operations * samples / per_second
    }

    /// DDP's buckets: the first is closed when it has 1 MiB, all others when they have 25. No tensor is cut.
    pub fn buckets(&self, bytes_per_parameter: f64) -> Vec<Bucket> {
        let (mut buckets, mut bytes, mut ready) = (Vec::new(), 0.0, 0.0);
        for &(millions, share, tensors) in self.layers {
            for _ in 0..tensors {
                ready += share / f64::from(tensors);
                bytes += 1e6 * millions * bytes_per_parameter / f64::from(tensors);
                if bytes >= if buckets.is_empty() { MIB } else { 25.0 * MIB } {
                    buckets.push(Bucket { bytes, ready });
                    bytes = 0.0;
                }
            }
        }
        buckets.extend((bytes > 0.0).then_some(Bucket { bytes, ready: 1.0 }));
        buckets
    }

    /// All gradients at once, after the backward pass.
    pub fn one_bucket(&self, bytes_per_parameter: f64) -> Vec<Bucket> {
        vec![Bucket { bytes: self.parameters() * bytes_per_parameter, ready: 1.0 }]
    }
}

const fn network(name: &'static str, operations: f64, layers: Layers) -> Network {
    Network { name, operations, layers }
}

// Parameters and operations are counted in the networks' definitions; Inception's shares are estimates.
pub const RESNET_50: Network = network(
    "ResNet-50",
    24.6,
    &[(2.05, 0.001, 1), (14.96, 0.198, 32), (7.1, 0.359, 55), (1.22, 0.254, 39), (0.23, 0.188, 33)],
);
const RESNET_101: Network = network(
    "ResNet-101",
    47.0,
    &[
        (2.05, 0.001, 1),
        (14.96, 0.104, 32),
        (26.10, 0.660, 210),
        (1.22, 0.133, 39),
        (0.23, 0.102, 33),
    ],
);
const INCEPTION_V3: Network = network(
    "Inception V3",
    34.2,
    &[(2.05, 0.001, 1), (11.10, 0.150, 60), (8.90, 0.420, 120), (1.70, 0.429, 40)],
);
/// Nine tenths of its parameters are in three layers that are done first.
const VGG_16: Network = network(
    "VGG-16",
    92.8,
    &[
        (4.10, 0.001, 1),
        (16.78, 0.001, 1),
        (102.76, 0.006, 1),
        (7.08, 0.090, 6),
        (5.90, 0.240, 6),
        (1.74, 0.662, 14),
    ],
);
/// 128 tokens a sample. Its embeddings are complete last.
const BERT_BASE: Network = network("BERT-base", 66.0, &[(85.5, 0.98, 192), (24.0, 0.02, 3)]);
/// A sample is a token.
pub const GPT: Network = network("GPT 1.3B", 7.89, &[(1208.0, 0.95, 290), (107.0, 0.05, 2)]);

pub const NETWORKS: [Network; 6] = [RESNET_50, RESNET_101, INCEPTION_V3, VGG_16, BERT_BASE, GPT];
