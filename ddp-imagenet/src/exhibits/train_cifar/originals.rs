//! Flags of the companion repository of "Learn PyTorch Multi-GPU properly" that have another name here.

use crate::originals::{DIST_URL, RANK, WORLD_SIZE};
use report::{Here, Originals};

pub const ORIGINALS: Originals<'_> = &[
    ("--dist-backend", Here::Flag("--backend")),
    ("--gpu-devices", Here::Instead(DEVICES)),
    ("--gpu", Here::Instead(DEVICES)),
    ("--resume", Here::Instead("leave it out; the original never reads it")),
    ("--distributed", Here::Instead("type launch -n N ddp-imagenet train-cifar --method ddp")),
    ("--world-size", Here::Instead(WORLD_SIZE)),
    ("--rank", Here::Instead(RANK)),
    ("--dist-url", Here::Instead(DIST_URL)),
];

const DEVICES: &str = "type --devices cuda:0,cuda:1 for GPUs 0 and 1";
