//! The losses of the first draft of Boiko's program equal Python's in every digit that is printed.

use anyhow::{Result, ensure};
use tests::programs::example;
use tests::{printed, python};

#[test]
fn the_drafts_losses_equal_python() -> Result<()> {
    let rust = printed(example("printed_losses", [])?)?;
    let python = printed(python("printed_losses", [])?)?;
    ensure!(python.lines().count() == 3, "{python}");
    // Below the heading, each line goes on with what Python does not print.
    let mut lines = python.lines().zip(rust.lines().skip(1));
    ensure!(lines.all(|(python, rust)| rust.starts_with(python)), "{rust} against {python}");
    Ok(())
}
