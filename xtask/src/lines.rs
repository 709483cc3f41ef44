//! `cargo xtask lines`: counts the lines of code of each trainer.

use crate::checkout::checkout;
use crate::files::{entries, read};
use anyhow::Result;
use std::path::Path;

const TRAINERS: [&str; 5] =
    ["ddp-mnist", "ddp-imagenet", "dp-custom-criterion", "dp-basic", "async-update"];

/// Lines of code, without comments, blank lines and tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    trainer: usize,
    /// Code in folders named `exhibits`, which only explains or compares.
    exhibits: usize,
}

pub(crate) fn run() -> Result<()> {
    println!("{:<20} {:>7} {:>8} {:>6}", "", "trainer", "exhibits", "both");
    let mut sum = Lines::default();
    for name in TRAINERS {
        let mut lines = Lines::default();
        count(&checkout().join(name).join("src"), false, &mut lines)?;
        print(name, &lines);
        sum.trainer += lines.trainer;
        sum.exhibits += lines.exhibits;
    }
    print("all", &sum);
    Ok(())
}

fn print(name: &str, Lines { trainer, exhibits }: &Lines) {
    println!("{name:<20} {trainer:>7} {exhibits:>8} {:>6}", trainer + exhibits);
}

fn count(folder: &Path, exhibits: bool, lines: &mut Lines) -> Result<()> {
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            count(&path, exhibits || name == "exhibits", lines)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") && name != "tests.rs" {
            let code = of_code(&read(&path)?);
            *(if exhibits { &mut lines.exhibits } else { &mut lines.trainer }) += code;
        }
    }
    Ok(())
}

/// Counts the lines of code in a file. Relies on rustfmt's layout: a test module ends at the first
/// `}` with the same indentation as its attribute.
fn of_code(text: &str) -> usize {
    let mut lines = text.lines();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let indent = &line[..line.len() - line.trim_start().len()];
            let one_line = lines.next().is_some_and(|item| item.ends_with(';'));
            let end = format!("{indent}}}");
            if !one_line {
                lines.by_ref().take_while(|line| *line != end).for_each(drop);
            }
        } else if !line.trim().is_empty() && !line.trim_start().starts_with("//") {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_are_not_code() {
        let text = "//! A map.\n\nmod a; // counts\n#[cfg(test)]\nmod testing;\n\n/// Nothing.\nfn f() {\n    g();\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn h() {\n    }\n}\n";
        assert_eq!(of_code(text), 4);
    }
}
