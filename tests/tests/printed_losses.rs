//! The losses of the first draft of Boiko's program equal Python's in every digit that is printed.

use anyhow::{Result, ensure};
use tests::programs::example;
use tests::{Job, python};

#[test]
fn the_drafts_losses_equal_python() -> Result<()> {
    let job = Job::new()?;
    let rust = job.run(example("printed_losses", [])?)?.expect_success()?.stdout;
    let python = job.run(python("printed_losses", [])?)?.expect_success()?.stdout;
    ensure!(python.lines().count() == 3, "{python}");
    // Below the heading, each line goes on with what Python does not print.
    let mut lines = python.lines().zip(rust.lines().skip(1));
    ensure!(lines.all(|(python, rust)| rust.starts_with(python)), "{rust} against {python}");
    Ok(())
}
