//! The index of scenarios names only tests and examples that exist.

use std::fs;
use std::path::Path;

use anyhow::Result;
use tests::programs::{source, workspace};

/// All Rust code of the workspace.
fn code(directory: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            text.push_str(&code(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(text)
}

#[test]
fn the_index_names_tests_and_examples_that_exist() -> Result<()> {
    let crates = [
        "core",
        "async-update",
        "dp-basic",
        "dp-custom-criterion",
        "ddp-mnist",
        "ddp-imagenet",
        "launch",
        "exhibit-kit",
        "report",
        "tests",
    ];
    let code: String =
        crates.iter().map(|name| code(&workspace().join(name))).collect::<Result<_>>()?;
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
    let last = [32, 60, 23, 34, 52];
    let expected = last
        .iter()
        .enumerate()
        .flat_map(|(source, &last)| (1..=last).map(move |row| (source, row)));
    assert_eq!(numbers.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    Ok(())
}
