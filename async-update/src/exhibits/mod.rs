//! What explains and compares the methods. Nothing here is needed to train.
//!
//! | folder | subcommand | what it shows |
//! |---|---|---|
//! | `trace` | `trace` | the article's two asynchronous stories, number by number |
//! | `quadratic` | `quadratic` | what theory says about asynchronous updates, measured |
//! | `compare` | `compare` | all methods side by side, with and without a slow worker |
//! | `cost` | `cost` | what a message costs, and so an update |
//! | `ring` | `ring show`, `ring check` | where the chunks are, and whether the sums are right |
//!
//! `histogram` shows how stale the gradients were of which a server made its model; `least_squares` is what `quadratic` and `cost` fit with.

mod compare;
mod cost;
mod histogram;
mod least_squares;
mod quadratic;
mod ring;
mod trace;

pub use histogram::histogram;
pub use ring::RingExhibit;

use anyhow::Result;

#[derive(Debug, clap::Subcommand)]
pub enum Exhibit {
    /// Tell the article's two asynchronous stories, number by number.
    #[command(after_help = "Examples:
  async-update trace case1
  async-update trace case2")]
    Trace {
        #[command(subcommand)]
        story: trace::Story,
    },
    /// Measure what theory says about asynchronous updates, on a quadratic function.
    Quadratic(quadratic::Args),
    Compare(compare::Args),
    Cost(cost::Args),
}

impl Exhibit {
    pub fn run(&self) -> Result<()> {
        match self {
            Exhibit::Trace { story } => story.tell(),
            Exhibit::Quadratic(args) => quadratic::run(args),
            Exhibit::Compare(args) => compare::run(args),
            Exhibit::Cost(args) => cost::run(args),
        }
    }
}
