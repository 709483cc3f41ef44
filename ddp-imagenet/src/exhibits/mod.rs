//! Programs that show methods rather than train a network for use: the article's PyramidNet, trained
//! with four methods, and what each of them needs.
//!
//! | folder | what it shows |
//! |---|---|
//! | [`train_cifar`] | `ddp-imagenet train-cifar`: one training, with one file for each method |
//! | [`compare`] | `ddp-imagenet compare`: all of them, and the time and memory that each takes |

pub mod compare;
pub mod train_cifar;
