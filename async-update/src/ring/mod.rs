//! The ring all-reduce: what is sent when, the exchange itself, and its figures.
//!
//! | file | what it holds |
//! |---|---|
//! | `schedule` | which chunk goes to which neighbour in which iteration |
//! | `all_reduce` | the schedule carried out on a tensor |
//! | `symbolic` | the schedule carried out on names |
//! | `show` | the names after each iteration, in the terminal |
//! | `page` | the same as a moving picture |
//! | `check` | a comparison with other ways to add up |

mod all_reduce;
pub mod check;
mod page;
mod schedule;
pub mod show;
mod symbolic;

pub use all_reduce::all_reduce;
pub use schedule::chunk;
