//! One run of a job, and what its ranks' JSON lines say about it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::command;

/// The folder of one run: its ranks' metrics, and all that it printed.
pub(super) struct Log {
    folder: PathBuf,
}

impl Log {
    /// An empty folder, in the place of that of an earlier benchmark.
    pub(super) fn new(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// What the job's `--metrics` is to say.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// What one run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    /// Seconds from the launcher's start to its end.
    pub(super) wall: f64,
    /// Seconds from the launcher's start until every rank has done its first step.
    pub(super) first_step: f64,
    /// Peak resident memory in bytes, of the rank that took the most.
    pub(super) peak_rss: f64,
    /// Median seconds of a training step, of the slower rank.
    pub(super) step: f64,
}

/// The counted runs of both sides.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) rust: Vec<Run>,
    pub(super) python: Vec<Run>,
}

impl Figures {
    pub(super) fn push(&mut self, (rust, python): (Run, Run)) {
        self.rust.push(rust);
        self.python.push(python);
    }
}

/// Runs the job to its end.
pub(super) fn run(mut launcher: Command, log: &Log) -> Result<Run> {
    let printed = log.folder.join("printed.txt");
    let file =
        File::create(&printed).with_context(|| format!("cannot create {}", printed.display()))?;
    launcher.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);

    let spawned_at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    let clock = Instant::now();
    command::run_quietly(&mut launcher).with_context(|| format!("see {}", printed.display()))?;
    let wall = clock.elapsed().as_secs_f64();

    let ranks = (0..2).map(|rank| {
        let path = log.folder.join(format!("rank{rank}.jsonl"));
        let lines =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (first_step, peak_rss, step) =
            read_rank(&lines).with_context(|| format!("in {}", path.display()))?;
        Ok(Run { wall, first_step: first_step - spawned_at, peak_rss, step })
    });
    let ranks = ranks.collect::<Result<Vec<_>>>()?;
    let worst = |figure: fn(&Run) -> f64| ranks.iter().map(figure).fold(0.0, f64::max);
    Ok(Run {
        wall,
        first_step: worst(|r| r.first_step),
        peak_rss: worst(|r| r.peak_rss),
        step: worst(|r| r.step),
    })
}

/// When the first step ended, peak memory and median step, from what one rank writes at its end.
fn read_rank(lines: &str) -> Result<(f64, f64, f64)> {
    let end = lines
        .lines()
        .find(|line| line.contains("\"event\":\"end\""))
        .context("there is no \"event\":\"end\"")?;
    Ok((
        number(end, "first_step_unix_seconds")?,
        number(end, "peak_rss_bytes")?,
        number(end, "step_seconds_median")?,
    ))
}

/// A number in a flat JSON object, as both programs write it: without spaces.
fn number(line: &str, key: &str) -> Result<f64> {
    let (_, rest) = line
        .split_once(&format!("\"{key}\":"))
        .with_context(|| format!("there is no \"{key}\" in {line}"))?;
    let digits = rest.split([',', '}']).next().unwrap_or(rest);
    let number =
        digits.parse::<f64>().with_context(|| format!("\"{key}\" is no number in {line}"))?;
    ensure!(number.is_finite(), "\"{key}\" is not finite in {line}");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"event":"step","rank":0,"world_size":2,"epoch":0,"step":0,"loss":2.3}
{"event":"epoch","rank":0,"world_size":2,"epoch":0,"train_loss":0.9}
{"event":"end","rank":0,"first_step_unix_seconds":101.25,"step_seconds_median":0.0011,"peak_rss_bytes":150000000}
"#;

    #[test]
    fn a_rank_is_read_from_its_end() {
        assert_eq!(read_rank(LINES).expect("all is there"), (101.25, 150_000_000.0, 0.0011));
    }

    #[test]
    fn a_job_that_did_not_end_is_an_error() {
        let cut_off = &LINES[..LINES.find("{\"event\":\"end\"").expect("it is there")];
        assert_eq!(
            read_rank(cut_off).expect_err("it has no end").to_string(),
            "there is no \"event\":\"end\""
        );
    }

    #[test]
    fn a_missing_or_strange_number_is_an_error() {
        for line in [r#"{"event":"end"}"#, r#"{"t":null}"#, r#"{"t":NaN}"#] {
            number(line, "t").expect_err(line);
        }
    }
}
