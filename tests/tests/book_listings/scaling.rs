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
