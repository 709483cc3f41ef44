//! Chapter "How far it scales".

use super::*;

/// The text and the pictures of one run.
fn expect_all_equal(name: &str, pictures: &[&str]) -> Result<()> {
    let (shown, program) = first_command(name)?;
    let job = Job::new()?;
    let text = job.run(program)?.expect_success()?.stdout;
    expect_listing(&format!("{name}.txt"), &(shown + &text), EXACT)?;
    pictures.iter().try_for_each(|file| expect_listing(file, &job.text(file)?, EXACT))
}

cases! {
    fn the_model_and_what_others_published_are_as_the_book_shows() = expect_replay("scaling_published.txt", EXACT);
    fn thousands_of_ranks_are_simulated_as_the_book_shows() = expect_all_equal("scaling_curves", &["scaling.svg"]);
    fn the_recorded_trainings_of_large_batches_are_as_the_book_shows() =
        expect_all_equal("batches", &["batches_fashion.svg", "batches_cifar.svg", "batches_noise.svg"]);
}
