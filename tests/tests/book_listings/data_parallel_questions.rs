//! Chapter "Two threads of questions, answered".

use anyhow::Result;
use tests::programs::dp_basic;

use super::listing::{LAST_DIGIT, expect_listing};
use super::printed;

/// The questions as the book asks them, grouped by listing.
const QUESTIONS: [&str; 24] = [
    "S0.1",
    "S0.2",
    "S0.4",
    "S0.5",
    "S0.6",
    "S0.8 S0.9",
    "S0.11",
    "S0.12",
    "S0.13",
    "S0.19 S0.20",
    "S0.21",
    "S0.22",
    "S0.23",
    "S0.25 S0.26",
    "S0.27",
    "S0.30 S0.31",
    "S2.1 S2.8",
    "S2.9 S2.10",
    "S2.11",
    "S2.12",
    "S2.16 S2.18",
    "S2.14 S2.17 S2.19",
    "S2.20 S2.21 S2.22",
    "S2.23",
];

#[test]
fn the_questions_are_answered_as_the_book_shows() -> Result<()> {
    for rows in QUESTIONS {
        let flags = format!("answers {rows}");
        let shown = format!("$ cargo run -rq -p dp-basic -- {flags}\n");
        let name = format!("answers_{}.txt", rows.replace(' ', "_"));
        let text = printed(dp_basic(flags.split(' '))?)?;
        expect_listing(&name, &(shown + text.trim_end() + "\n"), LAST_DIGIT)?;
    }
    Ok(())
}
