//! The ring all-reduce: what is sent when, and the exchange itself.
//!
//! | file | what it holds |
//! |---|---|
//! | `schedule` | which chunk goes to which neighbour in which iteration |
//! | `all_reduce` | the schedule carried out on a tensor |

mod all_reduce;
mod schedule;

pub use all_reduce::all_reduce;
pub use schedule::chunk;
