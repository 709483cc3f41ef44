//! Chapter "How far it scales".

use super::*;

#[test]
fn the_model_and_what_others_published_are_as_the_book_shows() -> Result<()> {
    expect_replay("scaling_published.txt", EXACT)
}

#[test]
fn thousands_of_ranks_are_simulated_as_the_book_shows() -> Result<()> {
    let (shown, program) = first_command("scaling_curves")?;
    let (text, svg) = printed_and_written(program, "scaling.svg")?;
    expect_listing("scaling_curves.txt", &(shown + &text), EXACT)?;
    expect_listing("scaling.svg", &svg, EXACT)
}

#[test]
fn the_recorded_trainings_of_large_batches_are_as_the_book_shows() -> Result<()> {
    let (shown, program) = first_command("batches")?;
    let job = Job::new()?;
    let text = job.run(program)?.expect_success()?.stdout;
    expect_listing("batches.txt", &(shown + &text), EXACT)?;
    ["batches_fashion.svg", "batches_cifar.svg", "batches_noise.svg"]
        .into_iter()
        .try_for_each(|file| expect_listing(file, &job.text(file)?, EXACT))
}
