//! One run of a program, and the events that it writes.

use super::report;
use crate::prelude::*;
use serde_json::Value;

/// Steps at the start of a run that do not count: they allocate memory and start threads.
pub(super) const WARM_UP: usize = 2;

pub(super) struct Log {
    /// To be passed to the program's `--metrics`.
    pub(super) folder: PathBuf,
}

impl Log {
    /// Creates an empty folder, which replaces that of an earlier run.
    pub(super) fn new(folder: PathBuf) -> Result<Self> {
        remove(&folder)?;
        make(&folder)?;
        Ok(Self { folder })
    }

    /// Runs the program to its end. If it fails, the error says where its output is.
    pub(super) fn run(&self, program: &mut Command) -> Result<()> {
        let printed = self.folder.join("printed.txt");
        let file = File::create(&printed)
            .with_context(|| format!("cannot create {}", printed.display()))?;
        program.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
        command::run_quietly(program).with_context(|| format!("see {}", printed.display()))
    }

    /// Reads figures from one rank's metrics with `figures`, whose errors then name the file.
    pub(super) fn read<T>(
        &self,
        rank: usize,
        figures: impl FnOnce(&str) -> Result<T>,
    ) -> Result<T> {
        let path = self.folder.join(format!("rank{rank}.jsonl"));
        figures(&read(&path)?).with_context(|| format!("in {}", path.display()))
    }
}

fn events(lines: &str, name: &str) -> Result<Vec<Value>> {
    let events = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    Ok(events.into_iter().filter(|event| event["event"] == name).collect())
}

pub(super) fn end(lines: &str) -> Result<Value> {
    events(lines, "end")?.pop().context("there is no event \"end\"")
}

pub(super) fn number(event: &Value, key: &str) -> Result<f64> {
    event[key].as_f64().with_context(|| format!("there is no number \"{key}\" in {event}"))
}

/// The median of a figure over the steps, without the first [`WARM_UP`].
pub(super) fn median(lines: &str, key: &str) -> Result<f64> {
    let steps = events(lines, "step")?;
    let mut figures = steps.iter().map(|step| number(step, key)).collect::<Result<Vec<_>>>()?;
    ensure!(figures.len() > WARM_UP, "of {} steps, the first {WARM_UP} do not count", steps.len());
    Ok(report::median(figures.split_off(WARM_UP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_with_and_without_spaces_after_colons() {
        let lines = "{\"event\":\"step\",\"loss\":2}\n{\"event\": \"end\", \"bytes\": 3}\n";
        assert_eq!(number(&events(lines, "step").unwrap()[0], "loss").unwrap(), 2.0);
        assert_eq!(number(&end(lines).unwrap(), "bytes").unwrap(), 3.0);
    }

    #[test]
    fn a_missing_event_or_number_is_an_error() {
        let step = r#"{"event":"step","loss":null}"#;
        assert_eq!(end(step).unwrap_err().to_string(), "there is no event \"end\"");
        let step = events(step, "step").unwrap().remove(0);
        for key in ["loss", "seconds"] {
            number(&step, key).unwrap_err();
        }
    }

    #[test]
    fn the_first_steps_of_a_run_do_not_count() {
        let step = |seconds: f64| format!("{{\"event\":\"step\",\"seconds\":{seconds}}}\n");
        let steps = [9.0, 8.0, 0.3, 0.1, 0.2].map(step);
        assert_eq!(median(&steps.concat(), "seconds").unwrap(), 0.2);
        let error = median(&steps[..2].concat(), "seconds").unwrap_err();
        assert_eq!(error.to_string(), "of 2 steps, the first 2 do not count");
    }

    #[test]
    fn a_program_that_fails_is_named_with_what_it_printed() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::new(folder.path().join("log")).unwrap();
        let ended = log.run(Command::new("sh").args(["-c", "echo no; exit 3"]));
        let (printed, error) = (log.folder.join("printed.txt"), ended.unwrap_err());
        assert_eq!(error.to_string(), format!("see {}", printed.display()));
        assert_eq!(read(&printed).unwrap(), "no\n");
    }
}
