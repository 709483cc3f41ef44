//! The READMEs show code that is compiled and tested, not an outdated copy.

use anyhow::{Context, Result};
use tests::printed;
use tests::programs::{between, example, launch, source};

#[test]
fn the_readmes_example_is_the_compiled_one() -> Result<()> {
    let example = source("core/examples/readme.rs")?;
    for name in ["README.md", "core/README.md"] {
        let readme = source(name)?;
        let shown = between(&readme, "<!-- example:begin -->", "<!-- example:end -->")?;
        let code = shown
            .trim()
            .strip_prefix("```rust\n")
            .and_then(|rest| rest.strip_suffix("```"))
            .with_context(|| format!("the example of {name} is not one block of ```rust"))?;
        assert_eq!(code.trim(), example.trim(), "{name} and core/examples/readme.rs differ");
    }
    Ok(())
}

#[test]
fn the_readmes_example_trains_the_same_weights_on_both_ranks() -> Result<()> {
    let output = printed(launch(2, &example("readme", [])?)?)?;
    let mut sums: Vec<_> = output.lines().filter_map(|line| line.split_once(": ")).collect();
    sums.sort_unstable();
    let [(first, weights), (second, others)] = sums[..] else {
        anyhow::bail!("two ranks print a line each, not {output}");
    };
    assert_eq!((first, second), ("rank 0", "rank 1"));
    assert_eq!(weights, others);
    Ok(())
}
