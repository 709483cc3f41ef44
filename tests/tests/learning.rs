//! The README's first command really learns.

use anyhow::{Context, Result};
use tests::Job;
use tests::programs::{ddp_mnist, launch, source};

/// The part of the README's first command before the trainer's flags.
const COMMAND: &str = "cargo launch -n 2 ddp-mnist -- ";

#[test]
fn the_readmes_command_reads_945_of_1000_digits_right() -> Result<()> {
    let readme = source("README.md")?;
    let flags = readme
        .lines()
        .find_map(|line| line.trim_start_matches("$ ").strip_prefix(COMMAND))
        .with_context(|| format!("README.md has no line that begins with `{COMMAND}`"))?;
    let flags = flags.split('#').next().unwrap_or_default().split_whitespace();

    let job = Job::new()?;
    let ended = job.run(launch(2, &ddp_mnist(flags)?)?)?.expect_success()?;
    let last = ended.stdout.lines().rfind(|line| line.starts_with("Epoch=")).unwrap_or_default();
    let accuracy: f64 = last
        .rsplit_once("accuracy=")
        .with_context(|| format!("no accuracy is printed: {ended}"))?
        .1
        .parse()?;
    assert!(accuracy >= 0.945, "the last epoch ended with {last}");
    Ok(())
}
