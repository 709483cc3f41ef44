//! One run of a program, and the JSON lines that it writes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::report;
use crate::command;

/// The folder of one run: its ranks' metrics and its output.
pub(super) struct Log {
    folder: PathBuf,
}

/// When a run took place.
pub(super) struct Span {
    /// When it began: the time since 1970.
    pub(super) began: Duration,
    /// How long it took, by a monotonic clock.
    pub(super) took: Duration,
}

impl Log {
    /// Creates an empty folder, which replaces that of an earlier benchmark.
    pub(super) fn new(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// The folder to pass to the program's `--metrics`.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs the program to its end. If it fails, the error says where its output is.
    pub(super) fn run(&self, program: &mut Command) -> Result<Span> {
        let printed = self.folder.join("printed.txt");
        let file = File::create(&printed)
            .with_context(|| format!("cannot create {}", printed.display()))?;
        program.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);

        let began = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let clock = Instant::now();
        command::run_quietly(program).with_context(|| format!("see {}", printed.display()))?;
        Ok(Span { began, took: clock.elapsed() })
    }

    /// Reads figures from one rank's metrics with `figures`, whose errors then name the file.
    pub(super) fn read<T>(
        &self,
        rank: usize,
        figures: impl FnOnce(&str) -> Result<T>,
    ) -> Result<T> {
        let path = self.folder.join(format!("rank{rank}.jsonl"));
        let lines =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        figures(&lines).with_context(|| format!("in {}", path.display()))
    }
}

/// The lines of the events with this name.
pub(super) fn events<'a>(lines: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let quoted = format!("\"{name}\"");
    lines.lines().filter(move |line| value(line, "event") == Some(&quoted))
}

/// A number in a line.
pub(super) fn number(line: &str, key: &str) -> Result<f64> {
    let digits = value(line, key).with_context(|| format!("there is no \"{key}\" in {line}"))?;
    let number =
        digits.parse::<f64>().with_context(|| format!("\"{key}\" is not a number in {line}"))?;
    ensure!(number.is_finite(), "\"{key}\" is not finite in {line}");
    Ok(number)
}

/// The median of a figure over the events with this name, without the first `warm_up`.
pub(super) fn median(lines: &str, name: &str, key: &str, warm_up: usize) -> Result<f64> {
    let figures = events(lines, name).map(|line| number(line, key)).collect::<Result<Vec<_>>>()?;
    ensure!(
        figures.len() > warm_up,
        "there are {} events \"{name}\", of which the first {warm_up} do not count",
        figures.len()
    );
    Ok(report::median(figures[warm_up..].to_vec()))
}

/// The text of a field's value in a flat JSON object, which is what the programs write.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    rest.split([',', '}']).next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_with_and_without_spaces_after_colons() {
        let rust = r#"{"event":"step","step":0}"#;
        let python = r#"{"event": "step", "step": 1}"#;
        let end = r#"{"event":"end","steps":2}"#;
        let lines = [rust, end, python].join("\n");
        assert_eq!(events(&lines, "step").collect::<Vec<_>>(), [rust, python]);
        assert_eq!(number(rust, "step").expect("it is there"), 0.0);
        assert_eq!(number(python, "step").expect("it is there"), 1.0);
    }

    #[test]
    fn a_missing_or_strange_number_is_an_error() {
        for line in [r#"{"event":"end"}"#, r#"{"t":null}"#, r#"{"t":NaN}"#] {
            number(line, "t").expect_err(line);
        }
    }

    #[test]
    fn the_first_events_of_a_run_do_not_count() {
        let step =
            |seconds: f64| format!("{{\"event\":\"step\",\"seconds\":{seconds},\"lr\":0.1}}\n");
        let steps = [9.0, 8.0, 0.3, 0.1, 0.2].map(step);
        let of = |lines: &str| median(lines, "step", "seconds", 2);
        assert_eq!(of(&steps.concat()).expect("there are steps"), 0.2);
        let error = of(&steps[..2].concat()).expect_err("only those that do not count");
        assert_eq!(
            error.to_string(),
            "there are 2 events \"step\", of which the first 2 do not count"
        );
    }

    #[test]
    fn a_program_that_fails_is_named_with_what_it_printed() {
        let folder = std::env::temp_dir().join(format!("xtask-log-{}", std::process::id()));
        let log = Log::new(folder.clone()).expect("a temporary folder");
        let error = log
            .run(Command::new("sh").args(["-c", "echo no; exit 3"]))
            .map(|_| ())
            .expect_err("exit code 3");
        let printed = fs::read_to_string(folder.join("printed.txt")).expect("it was written");
        fs::remove_dir_all(&folder).expect("the folder goes");
        assert_eq!(error.to_string(), format!("see {}/printed.txt", folder.display()));
        assert_eq!(printed, "no\n");
    }
}
