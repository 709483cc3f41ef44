//! The article's two asynchronous stories, number by number.
//!
//! | file | what it holds |
//! |---|---|
//! | `stories` | case 1: one update each, the same as a synchronous update; case 2: four updates to one |
//! | `gpus` | the two GPUs, their losses, and the parameters that they share |
//! | `case1.jinja`, `case2.jinja` | what is told of each; `gpus.jinja` is a part of both |
//! | `optimizers` | where case 1 stops being the same |

mod gpus;
mod optimizers;
mod stories;

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
        Story::Case1 => stories::tell_case1(),
        Story::Case2 => stories::tell_case2(),
    }
}
