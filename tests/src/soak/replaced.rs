//! Ranks that are killed and replaced while the others go on: `elastic::run`.

use super::*;
use crate::programs::launch_with;
use rand::seq::IteratorRandom;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::{SystemTime, UNIX_EPOCH};

const RANKS: usize = 4;

/// How often ranks are killed in one job.
const KILLS: usize = 5;

/// Each takes some hundredths of a second.
const EPOCHS: &str = "150";

/// After this time a step was done without those that were killed.
const LATE: Duration = Duration::from_secs(1);

/// How many of its last bytes are read.
const LAST: u64 = 1 << 17;

/// Where each process writes its steps.
pub const STEPS: &str = "steps";

/// More threads and descriptors than a rank has, and fewer than if each generation left one behind.
const MOST: [(&str, usize); 2] = [("task", 15), ("fd", 60)];

struct Step {
    at: Duration,
    ranks: usize,
}

/// One rank or two are killed at random moments, time and again. Returns the longest time until all others
/// had done another step.
pub(super) fn replaced(trial: &mut Trial) -> Result<Duration> {
    let job = Job::new()?;
    fs::create_dir(job.path(STEPS))?;
    let program = example("elastic_counts", [EPOCHS, STEPS])?;
    let flags = ["-n", &RANKS.to_string(), "--max-restarts", "1000"];
    let mut launcher = job.start(launch_with(&flags, &program)?)?;
    let (mut longest, mut kills) = (Duration::ZERO, 0);
    while kills < KILLS {
        let all = || match ranks(&job, RANKS)? {
            Some(ranks) => Ok(Some(Some(ranks))),
            None => Ok(launcher.has_ended()?.then_some(None)),
        };
        // It ends by itself if it is fast.
        let Some(ranks) = job.until("all ranks have taken a step together", all)? else { break };
        sleep(Duration::from_millis(trial.rng.random_range(0..400)));
        let count = trial.rng.random_range(1..=2);
        let victims = ranks.iter().copied().choose_multiple(&mut trial.rng, count);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        for victim in &victims {
            // It may have ended.
            let _ = kill(*victim, Signal::SIGKILL);
        }
        for survivor in ranks.iter().filter(|rank| !victims.contains(rank)) {
            let next = || {
                // Not one that all had exchanged before.
                let is_next = |it: &Step| it.at > now && (it.ranks < RANKS || it.at > now + LATE);
                let next = steps(&job, *survivor)?.into_iter().find(is_next).map(|step| step.at);
                if next.is_none() && launcher.has_ended()? { Ok(Some(now)) } else { Ok(next) }
            };
            longest = longest.max(job.until("a survivor takes a step", next)? - now);
        }
        kills += 1;
    }
    for rank in ranks(&job, RANKS)?.unwrap_or_default() {
        for (what, most) in MOST {
            let count = fs::read_dir(format!("/proc/{rank}/{what}")).map_or(0, Iterator::count);
            ensure!(count < most, "a survivor of {kills} kills has {count} entries in {what}");
        }
    }
    let ended = launcher.wait()?;
    trial.log = ended.to_string();
    let ended = ended.expect_success()?;
    let counted: Vec<_> =
        ended.stdout.lines().filter_map(|line| line.split_once("every ")).collect();
    let right = format!("sample counts {EPOCHS} times");
    ensure!(!counted.is_empty() && counted.iter().all(|(_, counts)| *counts == right), "{ended}");
    ensure!(kills > 0, "it ended before a rank was killed");
    Ok(longest)
}

/// The ranks, if `count` are there and the last step of each was one with all.
pub fn ranks(job: &Job, count: usize) -> Result<Option<Vec<Pid>>> {
    let mut ranks = Vec::new();
    for entry in fs::read_dir(job.path(STEPS))? {
        let pid = entry?.file_name().to_string_lossy().parse().context("a process ID")?;
        let pid = Pid::from_raw(pid);
        let last = steps(job, pid)?.pop();
        if kill(pid, None).is_ok() && last.is_some_and(|step| step.ranks == count) {
            ranks.push(pid);
        }
    }
    Ok((ranks.len() == count).then_some(ranks))
}

/// The last steps of a process.
fn steps(job: &Job, process: Pid) -> Result<Vec<Step>> {
    let mut file = File::open(job.path(STEPS).join(process.to_string()))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST)))?;
    let mut text = String::new();
    file.take(LAST).read_to_string(&mut text)?;
    let step = |line: &str| {
        let (at, ranks) = line.split_once(' ')?;
        Some(Step { at: Duration::from_micros(at.parse().ok()?), ranks: ranks.parse().ok()? })
    };
    // The last line may not be whole yet, and neither is the first.
    let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let first = usize::from(length > LAST);
    Ok(whole.lines().skip(first).filter_map(step).collect())
}
