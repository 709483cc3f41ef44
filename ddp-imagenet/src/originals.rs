//! Flags of PyTorch's main.py, of Apex's main_amp.py, and of two repositories with PyramidNet, that
//! have another name here.

use report::{Here, Originals};

/// An answer that needs the subcommand `train-cifar` says so.
pub const ORIGINALS: Originals<'_> = &[
    // main.py
    ("--learning-rate", Here::Flag("--lr")),
    ("--dist-backend", Here::Flag("--backend")),
    ("--no-accel", Here::Flag("--device=cpu")),
    ("--pretrained", Here::Instead("leave it out, the weights are always trained here")),
    ("--gpu", Here::Instead(GPUS)),
    ("--multiprocessing-distributed", Here::Instead("type launch -n gpu for a rank on every GPU")),
    ("--world-size", Here::Instead("type launch --nnodes N for N hosts")),
    ("--rank", Here::Instead("type launch --node-rank K for host K")),
    ("--dist-url", Here::Instead("type launch --master-addr HOST --master-port PORT")),
    // main_amp.py
    ("--opt-level", Here::Instead("type --amp fp16 or --amp bf16; without it, it is O0")),
    ("--loss-scale", Here::Instead("leave it out, --amp fp16 finds the scale by itself")),
    ("--keep-batchnorm-fp32", Here::Instead("leave it out, with --amp it always does")),
    ("--prof", Here::Instead("type --profile DIR --steps N")),
    ("--deterministic", Here::Instead("type --seed N, which makes it deterministic as well")),
    // PyramidNet
    ("--num-workers", Here::Flag("--workers")),
    ("--num-worker", Here::Flag("--workers")),
    ("--gpu-devices", Here::Instead(GPUS)),
    ("--distributed", Here::Instead("type launch -n N ddp-imagenet train-cifar --method ddp")),
    ("--b", Here::Flag("--batch-size")),
    ("--batchsize", Here::Flag("--batch-size")),
    ("--depth", Here::Instead(DEPTH_AND_ALPHA)),
    ("--alpha", Here::Instead(DEPTH_AND_ALPHA)),
    ("--no-bottleneck", Here::Instead(DEPTH_AND_ALPHA)),
    ("--expname", Here::Instead("type --tensorboard DIR, and --checkpoint-dir DIR")),
    ("--no-verbose", Here::Instead("type --print-freq N with a large N")),
];

const GPUS: &str = "set CUDA_VISIBLE_DEVICES=0,1; for train-cifar, type --devices cuda:0,cuda:1";

const DEPTH_AND_ALPHA: &str =
    "type --arch pyramidnet110_a48, or pyramidnet164_a48_bn with bottlenecks";
