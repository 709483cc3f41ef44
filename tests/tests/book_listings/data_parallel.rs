//! Chapter "One process, several devices: DataParallel".

use super::ladder::diff_of_examples;
use super::*;

cases! {
    /// The weights are trained on numbers whose last bits differ between processors.
    fn the_losses_are_as_the_book_shows() = expect_replay("data_parallel.txt", 0.0015);
    fn from_one_device_to_several_it_is_this_diff() =
        expect_listing("single_device_to_data_parallel.diff", &diff_of_examples("single_device", "data_parallel")?, EXACT);
    fn a_traced_step_of_the_toy_is_as_the_book_shows() = expect_replay("trace_toy.txt", EXACT);
    fn a_traced_step_of_59_million_parameters_is_as_the_book_shows() = expect_drawn("trace_mlp");
    fn a_model_in_two_parts_is_as_the_book_shows() = expect_drawn("model_parallel");
    fn what_both_kinds_of_data_parallelism_send_is_counted() =
        expect_replay("data_parallel_or_ddp.txt", LAST_DIGIT);
}

/// All of its numbers are times, or quotients of times.
#[test]
fn the_speed_up_is_measured_as_the_book_shows() -> Result<()> {
    let (shown, program) = first_command("speedup")?;
    let text = printed(cut_short(program, &["--steps=1", "--batch=16"]))?;
    expect_listing("speedup.txt", &(shown + &text), f64::INFINITY)
}

#[test]
fn the_questions_are_answered_as_the_book_shows() -> Result<()> {
    let listings = files_below(&workspace().join("book/src/output"), &["txt"])?;
    let names = listings.iter().filter_map(|path| path.file_name()?.to_str());
    let answers: Vec<_> = names.filter(|name| name.starts_with("answers_")).collect();
    ensure!(answers.len() == 23, "the book has these answers: {answers:?}");
    answers.into_iter().try_for_each(|name| {
        let rows = name.trim_end_matches(".txt").replace('_', " ");
        let asked = source(format!("book/src/output/{name}"))?.lines().next().map(str::to_owned);
        ensure!(asked.is_some_and(|asked| asked.ends_with(&rows)), "{name} does not ask {rows}");
        expect_replay(name, LAST_DIGIT)
    })
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
