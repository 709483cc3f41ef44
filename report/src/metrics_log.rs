//! Metrics as JSON lines: one file per rank, one object per line.

use crate::{record_file::RecordFile, tensorboard::TensorBoard};
use serde::{Serialize, de::DeserializeOwned};
use std::{fs, path::Path};
use tch_parallel::{Error, Result, data::Shard};

/// Writes what a rank measures to `DIR/rank0.jsonl`, `DIR/rank1.jsonl` …
///
/// A line is in the file when [`log`](Self::log) returns, so a rank that is killed, or a full disk, leaves only
/// complete lines. An `f32` in a struct is written in the shortest form that reads back as the same `f32`;
/// `serde_json::json!` would turn it into an `f64`. JSON has no NaN and no infinity, which become `null`.
///
/// ```
/// use report::MetricsLog;
/// use tch_parallel::data::Shard;
///
/// #[derive(serde::Serialize)]
/// struct Step {
///     epoch: u64,
///     step: usize,
///     loss: f32,
/// }
///
/// let dir = tempfile::tempdir()?;
/// let mut metrics = MetricsLog::create(Some(dir.path()), Shard::new(0, 2)?)?;
/// metrics.log("step", &Step { epoch: 0, step: 0, loss: 2.304_109 })?;
///
/// let written = std::fs::read_to_string(dir.path().join("rank0.jsonl"))?;
/// assert_eq!(
///     written.trim_end(),
///     r#"{"event":"step","rank":0,"world_size":2,"epoch":0,"step":0,"loss":2.304109}"#
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MetricsLog {
    file: Option<RecordFile>,
    /// Only on rank 0.
    tensorboard: Option<TensorBoard>,
    rank: usize,
    world_size: usize,
}

/// The fields with which every line begins, followed by the caller's own.
#[derive(Serialize)]
struct Line<'a, F> {
    event: &'a str,
    rank: usize,
    world_size: usize,
    #[serde(flatten)]
    fields: &'a F,
}

impl MetricsLog {
    /// Creates this rank's file in `dir`, and `dir` itself if it does not exist; `rank` is usually the process group,
    /// `&group`. Replaces the file of an earlier run, and on rank 0 removes those of ranks that this run does not have.
    /// Without `dir` the log writes nothing. [`Error::Io`] if the directory or the file cannot be created.
    pub fn create(dir: Option<&Path>, rank: impl Into<Shard>) -> Result<Self> {
        let rank = rank.into();
        if let (Some(dir), 0) = (dir, rank.rank()) {
            let others = (rank.num_replicas()..).map(|it| dir.join(format!("rank{it}.jsonl")));
            others.take_while(|file| fs::remove_file(file).is_ok()).for_each(drop);
        }
        Self::with_file(dir, rank, RecordFile::create)
    }

    /// As [`create`](Self::create), but adds to a file that is there.
    pub fn open(dir: Option<&Path>, rank: impl Into<Shard>) -> Result<Self> {
        Self::with_file(dir, rank.into(), RecordFile::open)
    }

    fn with_file(
        dir: Option<&Path>,
        rank: Shard,
        file: fn(&Path, &str) -> Result<RecordFile>,
    ) -> Result<Self> {
        let (rank, world_size) = (rank.rank(), rank.num_replicas());
        let file = dir.map(|dir| file(dir, &format!("rank{rank}.jsonl"))).transpose()?;
        Ok(Self { file, tensorboard: None, rank, world_size })
    }

    /// Writes the numbers of rank 0's events to a file for TensorBoard in `dir` as well, where `event/field` is a
    /// curve. Without `dir` nothing changes. [`Error::Io`] as for [`create`](Self::create).
    pub fn with_tensorboard(mut self, dir: Option<&Path>) -> Result<Self> {
        self.tensorboard = dir.filter(|_| self.rank == 0).map(TensorBoard::create).transpose()?;
        Ok(self)
    }

    /// Writes one line: the event, the rank, the world size, then `fields`, which must be a struct or a map. Fails for
    /// a line that cannot be written, and for fields that JSON cannot represent.
    pub fn log(&mut self, event: &str, fields: &impl Serialize) -> Result<()> {
        if let Some(tensorboard) = &mut self.tensorboard {
            let fields = serde_json::to_value(fields).map_err(Error::other)?;
            tensorboard.log(event, &fields)?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = Line { event, rank: self.rank, world_size: self.world_size, fields };
        let mut bytes = serde_json::to_vec(&line).map_err(Error::other)?;
        bytes.push(b'\n');
        file.append(&bytes)
    }
}

/// The events of one name that a [`MetricsLog`] has written to `path`, in their order. [`Error::Io`] if the file cannot
/// be read, [`Error::Format`] if it holds an event of this name that is not an `E`.
pub fn read_events<E: DeserializeOwned>(path: impl AsRef<Path>, name: &str) -> Result<Vec<E>> {
    let path = path.as_ref();
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let event = |line: &str| -> serde_json::Result<Option<E>> {
        let event: serde_json::Value = serde_json::from_str(line)?;
        if event["event"] == name { serde_json::from_value(event).map(Some) } else { Ok(None) }
    };
    let events = text.lines().filter_map(|line| event(line).transpose());
    events.collect::<serde_json::Result<_>>().map_err(|error| {
        let expected = format!("events \"{name}\" as this program writes them");
        Error::format(path, error.to_string(), expected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::{fs::File, io::Write};

    #[derive(Serialize, serde::Deserialize)]
    struct Step {
        epoch: usize,
        loss: f32,
        seconds: f64,
    }

    #[test]
    fn an_opened_log_adds_to_what_is_there_but_for_half_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank0.jsonl");
        let logs = [MetricsLog::create, MetricsLog::open, MetricsLog::open];
        for (epoch, log) in logs.iter().enumerate() {
            let mut log = log(Some(dir.path()), Shard::WHOLE).unwrap();
            log.log("step", &Step { epoch, loss: 0.5, seconds: 1.0 }).unwrap();
            let half = "{\"event\":\"st";
            File::options().append(true).open(&path).unwrap().write_all(half.as_bytes()).unwrap();
        }
        MetricsLog::open(Some(dir.path()), Shard::WHOLE).unwrap();
        let epochs = read_events::<Value>(path, "step").unwrap();
        assert_eq!(epochs.iter().map(|step| &step["epoch"]).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn floats_are_shortest_and_a_loss_that_is_no_number_is_null() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        let mut log = MetricsLog::create(Some(&below), Shard::new(1, 2).unwrap()).unwrap();
        for (loss, seconds) in [(0.1, 0.1), (1.0 / 3.0, 1.0 / 3.0), (f32::NAN, f64::INFINITY)] {
            log.log("step", &Step { epoch: 0, loss, seconds }).unwrap();
        }
        assert_eq!(
            fs::read_to_string(below.join("rank1.jsonl")).unwrap(),
            r#"{"event":"step","rank":1,"world_size":2,"epoch":0,"loss":0.1,"seconds":0.1}
{"event":"step","rank":1,"world_size":2,"epoch":0,"loss":0.33333334,"seconds":0.3333333333333333}
{"event":"step","rank":1,"world_size":2,"epoch":0,"loss":null,"seconds":null}
"#
        );
    }

    #[test]
    fn a_line_is_in_the_file_at_once_until_a_new_run_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let create = || MetricsLog::create(Some(dir.path()), Shard::WHOLE).unwrap();
        let path = dir.path().join("rank0.jsonl");
        let lines = || fs::read_to_string(&path).unwrap().matches('\n').count();
        let mut log = create();
        for number in 1..4 {
            log.log("tick", &serde_json::json!({})).unwrap();
            assert_eq!(lines(), number);
        }
        create();
        assert_eq!(lines(), 0);
    }

    #[test]
    fn rank_0_writes_for_tensorboard_with_or_without_json() {
        let dir = tempfile::tempdir().unwrap();
        for (rank, files) in [(1, 0), (0, 1)] {
            let log = MetricsLog::create(None, Shard::new(rank, 2).unwrap()).unwrap();
            let mut log = log.with_tensorboard(Some(dir.path())).unwrap();
            log.log("step", &Step { epoch: 0, loss: 0.1, seconds: f64::NAN }).unwrap();
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files);
        }
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = MetricsLog::create(Some(file.path()), Shard::WHOLE).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot create directory {}", file.path().display()));
    }

    #[test]
    fn events_are_read_by_their_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank0.jsonl");
        let mut log = MetricsLog::create(Some(dir.path()), Shard::WHOLE).unwrap();
        for (epoch, loss) in [0.1, 1.0 / 3.0].into_iter().enumerate() {
            log.log("step", &Step { epoch, loss, seconds: 0.1 }).unwrap();
            log.log("tick", &serde_json::json!({})).unwrap();
        }
        let steps: Vec<Step> = read_events(&path, "step").unwrap();
        assert_eq!(steps.iter().map(|step| step.loss).collect::<Vec<_>>(), [0.1, 1.0 / 3.0]);
        let error = read_events::<Step>(&path, "tick").map(drop).unwrap_err().to_string();
        assert!(error.contains("rank0.jsonl: missing field `epoch`"), "{error}");
    }
}
