//! What a step computes, and in which order its gradients become complete.

/// Layers that follow each other in the backward pass.
struct Layers {
    /// In millions.
    parameters: f64,
    /// How much of the backward pass's time they take; of a network, these add up to 1.
    share: f64,
    tensors: u32,
}

/// A network, its last layers first.
pub struct Network {
    pub name: &'static str,
    layers: &'static [Layers],
}

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
        self.layers.iter().map(|layers| 1e6 * layers.parameters).sum()
    }

    /// DDP's buckets: the first is closed when it has 1 MiB, all others when they have 25. No tensor is cut.
    pub fn buckets(&self, bytes_per_parameter: f64) -> Vec<Bucket> {
        let (mut buckets, mut bytes, mut ready) = (Vec::new(), 0.0, 0.0);
        for layers in self.layers {
            for _ in 0..layers.tensors {
                ready += layers.share / f64::from(layers.tensors);
                bytes += 1e6 * layers.parameters * bytes_per_parameter / f64::from(layers.tensors);
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

const fn layers(parameters: f64, share: f64, tensors: u32) -> Layers {
    Layers { parameters, share, tensors }
}

// Counted in the networks' definitions: parameters, and shares of the multiplications.
pub const RESNET50: Network = Network {
    name: "ResNet-50",
    layers: &[
        layers(2.05, 0.001, 1),
        layers(14.96, 0.198, 32),
        layers(7.10, 0.359, 55),
        layers(1.22, 0.254, 39),
        layers(0.23, 0.188, 33),
    ],
};
pub const RESNET101: Network = Network {
    name: "ResNet-101",
    layers: &[
        layers(2.05, 0.001, 1),
        layers(14.96, 0.104, 32),
        layers(26.10, 0.660, 210),
        layers(1.22, 0.133, 39),
        layers(0.23, 0.102, 33),
    ],
};
pub const INCEPTION_V3: Network = Network {
    name: "Inception V3",
    layers: &[
        layers(2.05, 0.001, 1),
        layers(11.10, 0.150, 60),
        layers(8.90, 0.420, 120),
        layers(1.70, 0.429, 40),
    ],
};
/// Nine tenths of its parameters are in three layers that are done first.
pub const VGG16: Network = Network {
    name: "VGG-16",
    layers: &[
        layers(4.10, 0.001, 1),
        layers(16.78, 0.001, 1),
        layers(102.76, 0.006, 1),
        layers(7.08, 0.090, 6),
        layers(5.90, 0.240, 6),
        layers(1.74, 0.662, 14),
    ],
};
/// Its embeddings are complete last.
pub const BERT_BASE: Network =
    Network { name: "BERT-base", layers: &[layers(85.5, 0.98, 192), layers(24.0, 0.02, 3)] };
pub const GPT_1B: Network =
    Network { name: "GPT 1.3B", layers: &[layers(1208.0, 0.95, 290), layers(107.0, 0.05, 2)] };
