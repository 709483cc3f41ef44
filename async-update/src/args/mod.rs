//! The flags of the methods.
//!
//! | file | what it holds |
//! |---|---|
//! | `train` | [`TrainArgs`]: the flags that all methods have |
//! | `methods` | the flags of single methods |

mod methods;
mod train;

pub use methods::{
    AsyncPsArgs, EasgdArgs, HogwildArgs, LocalSgdArgs, Place, PostLocalArgs, ServerArgs, SspArgs,
};
pub use train::{MeetingArgs, TrainArgs, count, positive};
