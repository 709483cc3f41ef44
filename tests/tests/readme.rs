//! The README shows code that is compiled and tested, not a copy that has aged.

use anyhow::{Context, Result};
use tests::Job;
use tests::programs::{example, launch, source};

#[test]
fn the_readmes_example_is_the_compiled_one() -> Result<()> {
    let readme = source("README.md")?;
    let example = source("core/examples/readme.rs")?;
    let shown = readme
        .split_once("<!-- example:begin -->")
        .and_then(|(_, rest)| rest.split_once("<!-- example:end -->"))
        .context(
            "README.md has no part between `<!-- example:begin -->` and `<!-- example:end -->`",
        )?
        .0;
    let code = shown
        .trim()
        .strip_prefix("```rust\n")
        .and_then(|rest| rest.strip_suffix("```"))
        .context("the README's example is not one block of ```rust")?;
    assert_eq!(code.trim(), example.trim(), "README.md and core/examples/readme.rs differ");
    Ok(())
}

#[test]
fn the_readmes_example_trains_the_same_weights_on_both_ranks() -> Result<()> {
    let output = Job::new()?.run(launch(2, &example("readme", [])?)?)?.expect_success()?.stdout;
    let mut sums: Vec<_> = output.lines().filter_map(|line| line.split_once(": ")).collect();
    sums.sort_unstable();
    let [(first, weights), (second, others)] = sums[..] else {
        anyhow::bail!("two ranks print a line each, not {output}");
    };
    assert_eq!((first, second), ("rank 0", "rank 1"));
    assert_eq!(weights, others);
    Ok(())
}
