//! Training that goes on in its processes when a rank is lost, and takes in its successor: Horovod's `hvd.elastic`.
//!
//! `launch --max-restarts N` replaces a rank that fails, at most N times in all. If every rank is in [`run`], the
//! others do not end: they leave the old group, do the step again that failed, with all its samples, and take the new
//! rank in between two steps, as soon as it has started. In an elastic job (`launch --nnodes MIN:MAX`), so do hosts
//! that are lost, leave or join. A program without [`run`] is started anew, as under torchrun.
//!
//! | file | what it holds |
//! |---|---|
//! | `run` | [`run`]: calls the training again with another group |
//! | `state` | [`State`]: what all ranks have alike, and how a rank comes by it |
//! | `launcher` | what the launcher tells this process of its place |

mod launcher;
mod run;
mod state;

pub use run::run;
pub use state::State;
