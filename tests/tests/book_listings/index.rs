//! The index of scenarios names only tests and examples that exist.

use crate::prelude::*;

#[test]
fn the_index_names_tests_and_examples_that_exist() -> Result<()> {
    let crates = "core async-update dp-basic dp-custom-criterion ddp-mnist ddp-imagenet launch \
                  exhibit-kit report tests";
    let code = texts_below(crates, "rs")?.concat();
    let index = source("book/src/scenarios.md")?;
    let rows = index.lines().filter(|line| line.starts_with("| S"));
    for shown in rows.filter_map(|row| row.split('|').nth(3)) {
        for name in shown.split('`').skip(1).step_by(2).filter(|name| name.contains(['_', '/'])) {
            let example = workspace().join(format!("core/examples/{name}.rs"));
            let file = workspace().join(name);
            let exists = code.contains(&format!("fn {name}(")) || example.exists();
            assert!(exists || file.exists(), "the index names {name}, which is not there");
        }
    }
    Ok(())
}

#[test]
fn the_index_leaves_no_number_out() -> Result<()> {
    let index = source("book/src/scenarios.md")?;
    let numbers = index.lines().filter_map(|line| {
        let (source, row) = line.strip_prefix("| S")?.split(' ').next()?.split_once('.')?;
        Some((source.parse::<usize>().ok()?, row.parse::<usize>().ok()?))
    });
    let last = [32, 60, 23, 34, 52].into_iter().enumerate();
    let expected = last.flat_map(|(source, last)| (1..=last).map(move |row| (source, row)));
    assert_eq!(numbers.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    Ok(())
}
