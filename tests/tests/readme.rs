//! The READMEs show code that is compiled and tested, not an outdated copy, and a command that really learns.

use crate::prelude::*;

#[test]
fn the_readmes_example_is_the_compiled_one() -> Result<()> {
    let example = source("core/examples/readme.rs")?;
    for name in ["README.md", "core/README.md"] {
        let readme = source(name)?;
        let shown = between(&readme, "<!-- example:begin -->", "<!-- example:end -->")?.trim();
        let code = shown.strip_prefix("```rust\n").and_then(|rest| rest.strip_suffix("```"));
        let wrong = || format!("the example of {name} is not one block of ```rust");
        let code = code.with_context(wrong)?.trim();
        assert_eq!(code, example.trim(), "{name} and core/examples/readme.rs differ");
    }
    Ok(())
}

/// `cargo xtask package` builds such a crate.
#[test]
fn the_files_of_the_readers_own_crate_are_the_same_in_the_readme_and_the_book() -> Result<()> {
    let (readme, chapter) = (source("README.md")?, source("book/src/first-steps.md")?);
    let files = between(&readme, "### A crate of your own\n", "\n### ")?;
    for block in files.split("```").skip(1).step_by(2) {
        let (_, file) = block.split_once('\n').context("a block has lines")?;
        ensure!(chapter.contains(file), "the book's first steps have no\n{file}");
    }
    Ok(())
}

#[test]
fn the_readmes_command_reads_945_of_1000_digits_right() -> Result<()> {
    let readme = source("README.md")?;
    let flags = between(&readme, "\n$ cargo launch -n 2 ddp-mnist -- ", "\n")?;
    let flags = flags.split('#').next().unwrap_or_default().split_whitespace();

    let ended = Job::new()?.run(launch(2, &ddp_mnist(flags)?)?)?.expect_success()?;
    let last = ended.stdout.lines().rfind(|line| line.starts_with("Epoch=")).unwrap_or_default();
    let accuracy = last.rsplit_once("accuracy=");
    let (_, accuracy) = accuracy.with_context(|| format!("no accuracy is printed: {ended}"))?;
    assert!(accuracy.parse::<f64>()? >= 0.945, "the last epoch ended with {last}");
    Ok(())
}
