//! Chapter "Two threads of questions, answered".

use anyhow::{Context, Result, ensure};
use tests::programs::{example, files_below, workspace};

use super::alike::same;
use super::listing::{LAST_DIGIT, TRAINED};
use super::{expect_replay, printed};

#[test]
fn the_questions_are_answered_as_the_book_shows() -> Result<()> {
    let listings = files_below(&workspace().join("book/src/output"), &["txt"])?;
    let names = listings.iter().filter_map(|path| path.file_name()?.to_str());
    let answers: Vec<_> = names.filter(|name| name.starts_with("answers_")).collect();
    ensure!(answers.len() == 23, "the book has these answers: {answers:?}");
    answers.into_iter().try_for_each(|name| expect_replay(name, LAST_DIGIT))
}

#[test]
fn the_forums_script_says_how_many_gpus_it_uses_and_costs_the_same_on_all() -> Result<()> {
    let one = printed(example("using_gpus", [])?)?;
    let four = printed(example("using_gpus", ["4xcpu"])?)?;
    let (using, epochs) = four.split_once('\n').context("it prints several lines")?;
    assert_eq!(using, "Using 4 GPUs: cpu:0,cpu:1,cpu:2,cpu:3");
    // Sums of four parts round differently.
    assert!(same(&one, epochs, |_, _| LAST_DIGIT), "{one}{four}");
    expect_replay("using_gpus.txt", TRAINED)
}

#[test]
fn what_both_kinds_of_data_parallelism_send_is_counted() -> Result<()> {
    expect_replay("data_parallel_or_ddp.txt", LAST_DIGIT)
}
