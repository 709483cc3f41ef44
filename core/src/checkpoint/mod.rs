//! Checkpoints: files that are written atomically. They hold the whole model, even if
//! [`FullyShard`](crate::distributed::FullyShard) has sharded it. Rank 0 writes them, unless the name ends in
//! `.index.json`: then each rank that holds a shard writes its rows to a file beside that index, in a directory that
//! all hosts share. An index names the complete files of one version. Any number of ranks can load either kind.
//!
//! - [`save`], [`load`]: the weights, to use the model elsewhere.
//! - [`Training`]: a whole training, to continue it as if it had not been interrupted.
//! - [`check_destination`], [`replace`]: the files themselves, which may hold anything else as well.
//!
//! If its name ends in `.pt`, `.pth` or `.pth.tar`, a file has PyTorch's format, for `torch.load`; otherwise that of
//! safetensors, which Python reads with `safetensors.torch`. A file that is read may have either, whatever its name.
//! Both contain names, shapes, numbers and text, so loading runs no code; one that asks for a call is refused.

mod contents;
mod copy;
mod index;
mod layout;
mod random;
mod sharded;
#[cfg(test)]
mod testing;
mod training;
mod weights;

pub use random::Generators;
#[doc(inline)]
pub use tch_parallel_base::destination::{check_destination, replace};
pub use training::{AsTraining, Resumed, Training};
pub use weights::{load, save};
