//! What runs when, in a picture: `torch.profiler`.
//!
//! The trace is a JSON file in Chrome's format, which <https://ui.perfetto.dev> opens: a row for each
//! thread, with the operators, the nodes of the backward pass and the exchange of every bucket
//! (`shared_memory:all_reduce`, `gloo:all_reduce`, `nccl:all_reduce`) beside it.

mod schedule;

pub use schedule::{Schedule, ScheduledProfiler};
#[doc(inline)]
pub use tch_parallel_base::profiler::*;
