//! The article's two asynchronous stories, number by number.
//!
//! | file | what it holds |
//! |---|---|
//! | `gpus` | the two GPUs, their losses, and the parameters that they share |
//! | `case1` | one update each: the same as a synchronous update |
//! | `optimizers` | where case 1 stops being the same |
//! | `case2` | four updates of one GPU before the first of the other |

mod case1;
mod case2;
mod gpus;
mod optimizers;

use anyhow::Result;

/// Which of the stories.
#[derive(Debug, Clone, Copy, clap::Subcommand)]
pub enum Story {
    /// Both GPUs read θ_a, and make one update each.
    Case1,
    /// GPU2 makes four updates while GPU1 computes one.
    Case2,
}

pub fn run(story: Story) -> Result<()> {
    match story {
        Story::Case1 => print!("{}", case1::tell()?),
        Story::Case2 => print!("{}", case2::tell()),
    }
    Ok(())
}
