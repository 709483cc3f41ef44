//! The ring all-reduce, shown and checked.
//!
//! | file | what it holds |
//! |---|---|
//! | `symbolic` | the schedule carried out on names |
//! | `show`, `show.jinja` | the names after each iteration, in the terminal |
//! | `check` | a comparison with other ways to sum |

mod check;
mod show;
mod symbolic;

use anyhow::Result;

#[derive(Debug, clap::Subcommand)]
pub enum RingExhibit {
    /// Show which chunk of the gradient is where after each iteration.
    Show(show::Args),
    /// Compare the ring's sums with those of all_reduce and of a parameter server.
    Check(check::Args),
}

impl RingExhibit {
    pub fn run(&self) -> Result<()> {
        match self {
            RingExhibit::Show(args) => show::run(args),
            RingExhibit::Check(args) => check::run(args),
        }
    }
}
