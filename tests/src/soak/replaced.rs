//! Ranks that are killed and replaced while the others go on: `elastic::run`.

use super::*;
use crate::programs::launch_with;
use rand::seq::IteratorRandom;
use std::io::{Read, Seek, SeekFrom};
use std::{fs::File, time::SystemTime, time::UNIX_EPOCH};

const RANKS: usize = 4;

/// How often ranks are killed in one job.
const KILLS: usize = 5;

/// How often a host is.
const HOSTS: usize = 2;

/// After this time a step was done without those that were killed.
const LATE: Duration = Duration::from_secs(1);

/// How many of its last bytes are read.
const LAST: u64 = 1 << 17;

/// Where each process writes its steps.
pub const STEPS: &str = "steps";

/// More threads and descriptors than a rank has, and fewer than if each generation left one behind.
const MOST: [(&str, usize); 2] = [("task", 15), ("fd", 60)];

/// One rank or two are killed at random moments, time and again. Returns the longest time until all others
/// had done another step.
pub(super) fn replaced(trial: &mut Trial) -> Result<Duration> {
    let job = Job::new()?;
    fs::create_dir(job.path(STEPS))?;
    let flags = ["-n", &RANKS.to_string(), "--max-restarts", "1000"];
    let mut launcher = job.start(launch_with(&flags, &program()?)?)?;
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        let all = all_train(&job, RANKS)?;
        sleep(Duration::from_millis(trial.rng.random_range(0..400)));
        let count = trial.rng.random_range(1..=2);
        let victims = all.iter().copied().choose_multiple(&mut trial.rng, count);
        let others: Vec<_> = all.into_iter().filter(|rank| !victims.contains(rank)).collect();
        let begin = now()?;
        victims.iter().try_for_each(|victim| kill(*victim, Signal::SIGKILL))?;
        longest = longest.max(next_step(&job, begin, &others, RANKS)?);
    }
    for rank in all_train(&job, RANKS)? {
        for (what, most) in MOST {
            let count = fs::read_dir(format!("/proc/{rank}/{what}")).map_or(0, Iterator::count);
            ensure!(count < most, "a survivor has {count} entries in {what}");
        }
    }
    File::create(job.path(elastic::ENOUGH))?;
    let ended = launcher.wait()?;
    trial.log = ended.to_string();
    elastic::expect_counts(&[ended.expect_success()?])?;
    Ok(longest)
}

/// A host is killed at a random moment, or only falls silent, and another comes. Returns the longest time until
/// all others had done another step.
pub(super) fn hosts(trial: &mut Trial, signal: Signal) -> Result<Duration> {
    let per_node = trial.size.ranks_per_node;
    let all = NODES * per_node;
    let heartbeat_timeout = trial.size.heartbeat_timeout.to_string();
    // A short one only where it matters: a loaded machine may be late.
    let flags = ["--heartbeat-timeout", &heartbeat_timeout];
    let flags = if signal == Signal::SIGSTOP { &flags[..] } else { &[] };
    let victims = [(); HOSTS].map(|()| trial.rng.random_range(1..NODES));
    Cluster::with(NODES, &mut trial.log, |cluster| {
        fs::create_dir(cluster.job.path(STEPS))?;
        (0..NODES)
            .try_for_each(|host| elastic::start(cluster, host, per_node, flags, &program()?))?;
        let mut longest = Duration::ZERO;
        for victim in victims {
            let mut others = all_train(&cluster.job, all)?;
            let there = cluster.hosts.processes(victim)?;
            others.retain(|rank| !there.contains(rank));
            let begin = now()?;
            cluster.hosts.signal(victim, signal)?;
            longest = longest.max(next_step(&cluster.job, begin, &others, all)?);
            cluster.kill(victim)?;
            elastic::start(cluster, victim, per_node, flags, &program()?)?;
        }
        all_train(&cluster.job, all)?;
        elastic::end(cluster)?;
        Ok(longest)
    })
}

fn program() -> Result<Command> {
    example("elastic_counts", ["1000000", STEPS])
}

fn now() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// Waits until so many ranks have taken a step together.
fn all_train(job: &Job, count: usize) -> Result<Vec<Pid>> {
    job.until("all ranks have taken a step together", || ranks(job, count))
}

/// How long it takes until each of these ranks has taken a step without some of the `before`.
fn next_step(job: &Job, begin: Duration, ranks: &[Pid], before: usize) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    for rank in ranks {
        let next = || {
            // Not one that all had exchanged before.
            Ok(steps(job, *rank)?.into_iter().find_map(|(at, ranks)| {
                (at > begin && (ranks < before || at > begin + LATE)).then_some(at)
            }))
        };
        longest = longest.max(job.until("a survivor takes a step", next)? - begin);
    }
    Ok(longest)
}

/// The ranks, if `count` are there and the last step of each was one with all.
pub fn ranks(job: &Job, count: usize) -> Result<Option<Vec<Pid>>> {
    let mut ranks = Vec::new();
    for entry in fs::read_dir(job.path(STEPS))? {
        let pid = entry?.file_name().to_string_lossy().parse().context("a process ID")?;
        let pid = Pid::from_raw(pid);
        let last = steps(job, pid)?.pop();
        // One that has ended, but that nobody has waited for yet, has no program.
        let runs = fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        if runs && last.is_some_and(|(_, ranks)| ranks == count) {
            ranks.push(pid);
        }
    }
    Ok((ranks.len() == count).then_some(ranks))
}

/// When a process took its last steps, and with how many ranks.
fn steps(job: &Job, process: Pid) -> Result<Vec<(Duration, usize)>> {
    let mut file = File::open(job.path(STEPS).join(process.to_string()))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST)))?;
    let mut text = String::new();
    file.take(LAST).read_to_string(&mut text)?;
    let step = |line: &str| {
        let (at, ranks) = line.split_once(' ')?;
        Some((Duration::from_micros(at.parse().ok()?), ranks.parse().ok()?))
    };
    // The last line may not be whole yet, and neither is the first.
    let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    Ok(whole.lines().skip(usize::from(length > LAST)).filter_map(step).collect())
}
