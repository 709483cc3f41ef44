//! The questions of two forum threads, each answered by numbers that are computed on the spot.
//!
//! S0 is the thread "How pytorch's parallel method and distributed method works?", S2 the forum
//! question on understanding DataParallel; the numbers behind them are those of the book's index.
//!
//! | file | what it holds |
//! |---|---|
//! | `questions.jinja` | the questions, and answers with calls of experiments in them |
//! | `experiments` | the names by which that text calls the experiments |
//! | `toy` | what the experiments share: a model, a batch, a training step |
//! | `forward` | the forward pass: scatter, replicas, gather |
//! | `gradients` | the backward pass, and why gradients are summed |
//! | `losses` | a model that returns its loss |
//! | `three_placements` | the same step with the loss in three places |
//! | `cost` | the parts of a step, and what it costs: bytes copied, memory, time |
//! | `limits` | which models can be wrapped, and what changes for them |

mod cost;
mod experiments;
mod forward;
mod gradients;
mod limits;
mod losses;
mod three_placements;
mod toy;

use anyhow::{Result, ensure};
use report::println;

/// Answer the questions of two forum threads on DataParallel with numbers computed on the spot.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic answers              all of them
  dp-basic answers S2.12 S0.5   why gradients are summed, and what becomes of embeddings

`equal` means: up to rounding, a millionth of the largest value.
A line that begins with `measured` is a time and differs from run to run.")]
pub struct Args {
    /// Numbers of questions in the book's index, S0.1 to S0.32 and S2.1 to S2.23.
    #[arg(value_name = "QUESTION")]
    rows: Vec<String>,
}

/// A comment, then titles and questions, separated by empty lines.
const QUESTIONS: &str = include_str!("questions.jinja");

pub fn run(args: &Args) -> Result<()> {
    for row in &args.rows {
        ensure!(
            questions().any(|question| rows(question).any(|known| known == row)),
            "there is no question {row}; expected one of S0.1 to S0.32 or S2.1 to S2.23"
        );
    }
    let wanted = |question: &str| {
        args.rows.is_empty() || rows(question).any(|row| args.rows.iter().any(|arg| arg == row))
    };
    // With one thread, sums are added up in the same order on every machine.
    tch::set_num_threads(1);
    let experiments = experiments::environment()?;
    let mut title = None;
    for block in blocks() {
        if is_title(block) {
            title = Some(block);
        } else if wanted(block) {
            if let Some(title) = title.take() {
                println!("{title}\n");
            }
            println!("{}\n", experiments.render_str(block, ())?);
        }
    }
    Ok(())
}

fn blocks() -> impl Iterator<Item = &'static str> {
    QUESTIONS.trim_end().split("\n\n").skip(1)
}

fn is_title(block: &str) -> bool {
    block.starts_with("===")
}

fn questions() -> impl Iterator<Item = &'static str> {
    blocks().filter(|block| !is_title(block))
}

/// The numbers of a question in the book's index, which end at two spaces.
fn rows(question: &str) -> impl Iterator<Item = &str> {
    question.split("  ").take(1).flat_map(|rows| rows.split(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_question_of_the_threads_is_left_out() {
        let known: BTreeSet<_> = questions().flat_map(rows).map(str::to_owned).collect();
        let asked = (1..=32).map(|n| format!("S0.{n}")).chain((1..=23).map(|n| format!("S2.{n}")));
        assert_eq!(known, asked.collect());
    }
}
