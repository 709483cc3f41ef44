//! Flags of PyTorch's main.py, of Apex's main_amp.py, and of two repositories with PyramidNet, that
//! have another name here.

use report::{Here, Originals};

pub const ORIGINALS: Originals<'_> = &[
    // main.py
    ("--learning-rate", Here::Flag("--lr")),
    ("--dist-backend", Here::Flag("--backend")),
    ("--no-accel", Here::Flag("--device=cpu")),
    ("--pretrained", Here::Instead("leave it out; the weights are always trained here")),
    ("--gpu", Here::Instead("set CUDA_VISIBLE_DEVICES=0 for GPU 0")),
    ("--multiprocessing-distributed", Here::Instead("type launch -n gpu for a rank on every GPU")),
    ("--world-size", Here::Instead(WORLD_SIZE)),
    ("--rank", Here::Instead(RANK)),
    ("--dist-url", Here::Instead(DIST_URL)),
    // main_amp.py
    ("--opt-level", Here::Instead("type --amp fp16 or --amp bf16; without it, it is O0")),
    ("--loss-scale", Here::Instead("leave it out; --amp fp16 finds the scale by itself")),
    ("--keep-batchnorm-fp32", Here::Instead("leave it out; --amp always keeps it")),
    ("--prof", Here::Instead("type --profile DIR --steps N")),
    ("--deterministic", Here::Instead("type --seed N, which makes it deterministic as well")),
    // PyramidNet's authors
    ("--b", Here::Flag("--batch-size")),
    ("--batchsize", Here::Flag("--batch-size")),
    ("--depth", Here::Instead(DEPTH_AND_ALPHA)),
    ("--alpha", Here::Instead(DEPTH_AND_ALPHA)),
    ("--no-bottleneck", Here::Instead(DEPTH_AND_ALPHA)),
    ("--expname", Here::Instead("type --tensorboard DIR, and --checkpoint-dir DIR")),
    ("--no-verbose", Here::Instead("type --print-freq N with a large N")),
    ("--net-type", Here::Instead(DEPTH_AND_ALPHA)),
    ("--data", Here::Instead("type the directory alone")),
];

pub const WORLD_SIZE: &str = "type launch --nnodes N for N hosts";

pub const RANK: &str = "type launch --node-rank K for host K";

pub const DIST_URL: &str = "type launch --master-addr HOST --master-port PORT";

const DEPTH_AND_ALPHA: &str =
    "type --arch pyramidnet110_a48, or pyramidnet164_a48_bn with bottlenecks";
