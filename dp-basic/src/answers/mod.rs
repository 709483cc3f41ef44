//! The questions of two forum threads, each answered by numbers that are computed on the spot.
//!
//! A file for each theme holds functions that find something out, and beside them the questions
//! that they answer. S0 is the thread "How pytorch's parallel method and distributed method works?",
//! S2 the forum question on understanding DataParallel; the numbers behind them are those of the
//! book's index.

mod chunks;
mod embedding;
mod gradients;
mod limits;
mod loss_placement;
mod losses;
mod models;
mod output_device;
mod replicas;
mod small;
mod three_placements;
mod traffic;

use anyhow::{Result, bail};
use report::{Column, table};

/// Answer the questions of the two forum threads on DataParallel by numbers computed here and now.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic answers              all of them
  dp-basic answers S2.12 S0.5   why gradients are summed, and what becomes of embeddings

`equal` means: up to rounding, a millionth of the largest value.
A line that begins with `measured` is a time and differs from run to run.")]
pub struct Args {
    /// Questions by their numbers in the book's index, S0.1 to S0.32 and S2.1 to S2.23.
    #[arg(value_name = "QUESTION")]
    rows: Vec<String>,
}

/// Questions that belong together.
struct Theme {
    /// Stands above them.
    title: &'static str,
    questions: &'static [Question],
}

/// A question, and how it is answered.
struct Question {
    /// Its numbers in the book's index.
    rows: &'static [&'static str],
    /// The question in short.
    text: &'static str,
    /// Computes what the answer rests on, a line for each finding.
    numbers: fn() -> Result<Vec<String>>,
    /// What follows from the numbers.
    answer: &'static str,
}

/// What a page of the book shows without scrolling sideways.
const WIDTH: usize = 84;

const THEMES: [Theme; 10] = [
    chunks::THEME,
    replicas::THEME,
    embedding::THEME,
    gradients::THEME,
    losses::THEME,
    loss_placement::THEME,
    output_device::THEME,
    models::THEME,
    limits::THEME,
    traffic::THEME,
];

/// Questions that need a program of their own, and which it is.
const ELSEWHERE: [(&[&str], &str); 3] = [
    (&["S0.14", "S0.15", "S0.16", "S0.17"], "a model in two parts: dp-basic model-parallel"),
    (&["S0.24"], "how much faster several devices are: dp-basic speedup"),
    (&["S0.18"], "a pointer to another thread, with no answer in this one"),
];

pub fn run(args: &Args) -> Result<()> {
    for row in &args.rows {
        if !rows().any(|known| known == row) {
            bail!("there is no question {row}; expected one of S0.1 to S0.32 or S2.1 to S2.23");
        }
    }
    let wanted = |rows: &[&str]| {
        args.rows.is_empty() || args.rows.iter().any(|row| rows.contains(&row.as_str()))
    };
    // The same sums in the same order on every machine.
    tch::set_num_threads(1);
    for theme in &THEMES {
        let mut questions =
            theme.questions.iter().filter(|question| wanted(question.rows)).peekable();
        if questions.peek().is_some() {
            println!("=== {} ===\n", theme.title);
        }
        for question in questions {
            println!("{}  {}", question.rows.join(" "), question.text);
            for line in (question.numbers)()? {
                println!("    {line}");
            }
            let indented =
                textwrap::Options::new(WIDTH).initial_indent("  ").subsequent_indent("  ");
            println!("{}\n", textwrap::fill(question.answer, indented));
        }
    }
    for (rows, pointer) in ELSEWHERE.iter().filter(|(rows, _)| wanted(rows)) {
        println!("{}  {pointer}", rows.join(" "));
    }
    Ok(())
}

/// A table as lines.
fn lines<const N: usize>(
    columns: &[Column],
    rows: [Result<Vec<String>>; N],
) -> Result<Vec<String>> {
    let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(table(columns, &rows).lines().map(str::to_owned).collect())
}

fn rows() -> impl Iterator<Item = &'static str> {
    let here = THEMES.iter().flat_map(|theme| theme.questions).flat_map(|question| question.rows);
    here.chain(ELSEWHERE.iter().flat_map(|(rows, _)| *rows)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_question_of_the_threads_is_left_out() {
        let known: BTreeSet<_> = rows().map(str::to_owned).collect();
        let threads =
            (1..=32).map(|n| format!("S0.{n}")).chain((1..=23).map(|n| format!("S2.{n}")));
        assert_eq!(known, threads.collect());
    }
}
