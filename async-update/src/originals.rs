//! Flags of PyTorch's example mnist_hogwild that have another name here.

use report::{Here, Originals};

pub const HOGWILD: Originals<'_> = &[
    ("--num-processes", Here::Flag("--threads")),
    // It uses a GPU only where there is one.
    ("--cuda", Here::Flag("--device=auto")),
    ("--mps", Here::Instead("leave it out; a device is the CPU or a CUDA GPU")),
    ("--momentum", Here::Instead("leave it out; threads take plain SGD steps")),
    ("--test-batch-size", Here::Instead("leave it out; it is always 1000")),
    ("--log-interval", Here::Instead("type --metrics DIR for the loss of every step")),
    ("--save-model", Here::Instead("leave it out; the model is not saved")),
    ("--dry-run", Here::Instead("type --epochs 1; there is no shorter run")),
];
