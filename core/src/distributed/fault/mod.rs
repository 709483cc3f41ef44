//! Who is to blame when an exchange fails, and who learns of it. Knows the store and process numbers, but no group.
//!
//! | file | what it holds |
//! |---|---|
//! | `blame` | the rank at fault, as an error names it |
//! | `first_fault` | whose fault the first failure of this process is |
//! | `in_time` | questions to a store that may not answer |
//! | `process` | whether a process still runs |
//! | `members` | the ranks of a group that use this library, and their processes |
//! | `reports` | what ranks say of their own failures |
//! | `search`, `post_mortem` | the search for the rank at fault |
//! | `vote` | the votes of all ranks on going on |
//! | `unfinished` | whether a group has exchanges that may never finish |
//! | `watch`, `nccl_watch` | the ends of waits for a rank that has died |
//! | `record` | [`record`](fn@record): the end of a rank that fails |

pub(crate) mod blame;
pub(crate) mod first_fault;
pub(crate) mod in_time;
pub(crate) mod members;
pub(crate) mod nccl_watch;
pub(crate) mod post_mortem;
mod process;
pub(crate) mod record;
mod reports;
mod search;
pub(crate) mod unfinished;
pub(crate) mod vote;
pub(crate) mod watch;

pub use record::record;
