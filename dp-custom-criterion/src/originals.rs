//! codertimo's flags that have another name here.

use report::{Here, Originals};

/// Those of his `bert`.
pub const ORIGINALS: Originals<'_> = &[
    ("--train-dataset", Here::Flag("--corpus")),
    ("--vocab-path", Here::Flag("--vocab")),
    ("--output-path", Here::Flag("--output")),
    ("-hs", Here::Flag("--hidden")),
    ("-t", Here::Instead(NO_TEST_SET)),
    ("--test-dataset", Here::Instead(NO_TEST_SET)),
    ("--with-cuda", Here::Instead("type --devices cuda:0 for a GPU; without it, it is the CPU")),
    ("--cuda-devices", Here::Instead("type --devices cuda:0,cuda:1 for GPUs 0 and 1")),
    ("--corpus-lines", Here::Instead("leave it out; the lines of --corpus are counted")),
    ("--on-memory", Here::Instead("leave it out; all of --corpus is always in memory")),
    ("--lr", Here::Instead("it has no effect in the original either; type --warmup N")),
];

/// Those of his `bert-vocab`.
pub const VOCAB: Originals<'_> = &[
    ("--corpus-path", Here::Flag("--corpus")),
    ("--output-path", Here::Flag("--output")),
    ("--vocab-size", Here::Flag("--size")),
];

const NO_TEST_SET: &str = "leave it out; only the loss of --corpus is measured";
