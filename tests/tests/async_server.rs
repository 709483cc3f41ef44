//! The methods of async-update in which a server keeps the model: what they learn, who waits for
//! whom, and what becomes of the others when one is slow, late, killed or stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use tests::programs::{as_rank, async_update, free_port, launch, start_by_hand};
use tests::training::{events, has_taken_steps};
use tests::wait::until;
use tests::{Job, Process, expect_all_succeed};

/// What everybody who is left may take to end.
const SOON: Duration = Duration::from_secs(5);

const METRICS: &str = "--metrics=metrics";

/// Runs a method in so many ranks, and lets the test look at what they have left.
fn trained<T>(ranks: usize, flags: &[&str], look: impl Fn(&Path) -> Result<T>) -> Result<T> {
    let job = Job::new()?;
    let program = async_update(flags.iter().copied().chain([METRICS]))?;
    job.run(launch(ranks, &program)?)?.expect_success()?;
    look(job.directory())
}

/// Starts so many ranks of a method without a launcher, which would end all when one is lost.
fn start(job: &Job, ranks: usize, flags: &[&str]) -> Result<Vec<Process>> {
    let program = || async_update(flags.iter().copied().chain([METRICS]));
    start_by_hand(job, (0..ranks).map(|_| program()).collect::<Result<_>>()?)
}

fn wait_for_steps(job: &Job, rank: usize) -> Result<()> {
    until(&format!("rank {rank} has taken 5 steps"), job.deadline(), || {
        Ok(has_taken_steps(job.directory(), rank, 5).then_some(()))
    })
}

fn outcome(directory: &Path) -> Result<Value> {
    let outcomes = events(directory, 0, "outcome", |outcome| Some(outcome.clone()))?;
    outcomes.into_iter().next().context("no outcome")
}

fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("{name} in {value}"))
}

/// The ranks whose gradients went into the server's model, one for each update.
fn who_updated(directory: &Path) -> Result<Vec<u64>> {
    events(directory, 0, "update", |update| update["worker"].as_u64())
}

// === What they learn ===

/// At the settings that the README names.
#[test]
fn every_method_with_a_server_names_nine_digits_of_ten() -> Result<()> {
    for method in ["async-ps", "ssp", "easgd"] {
        let accuracy = number(&trained(4, &[method], outcome)?, "accuracy")?;
        ensure!(accuracy >= 0.9, "{method}: {accuracy}");
    }
    Ok(())
}

/// S1.25: where nobody else updates, nothing is stale. The server's update is then the step that
/// one process takes, in the same order of operations, however θ is cut.
#[test]
fn a_single_worker_takes_the_steps_of_plain_sgd_to_the_bit() -> Result<()> {
    let curve = |ranks, flags: &[&str]| {
        trained(ranks, flags, |directory| {
            let bits = |step: &Value| Some((step["loss"].as_f64()?, step["theta"].as_f64()?));
            let steps = events(directory, ranks - 1, "step", bits)?;
            let outcome = outcome(directory)?;
            Ok((steps, number(&outcome, "loss")?, number(&outcome, "batches")?))
        })
    };
    let expected = curve(1, &["sync-allreduce", "--epochs=1"])?;
    ensure!(expected.0.len() > 100, "it took {} steps", expected.0.len());
    assert_eq!(curve(2, &["async-ps", "--epochs=1"])?, expected);
    assert_eq!(curve(3, &["async-ps", "--epochs=1", "--servers=2"])?, expected);
    assert_eq!(curve(2, &["ssp", "--epochs=1", "--staleness=0"])?, expected);
    Ok(())
}

// === Who waits for whom ===

/// What a server's trace says, from the order of its events alone.
struct Trace {
    /// Before each read, by how many updates the reader led the slowest.
    leads: Vec<u64>,
    /// For each update, how many of others came after its worker's last read.
    staleness: Vec<u64>,
    /// What the server itself counted.
    counted: Vec<u64>,
}

fn trace(directory: &Path) -> Result<Trace> {
    let mut trace = Trace { leads: vec![], staleness: vec![], counted: vec![] };
    let mut clocks = BTreeMap::new();
    let mut unseen = BTreeMap::new();
    for line in fs::read_to_string(directory.join("metrics/rank0.jsonl"))?.lines() {
        let event: Value = serde_json::from_str(line)?;
        let natural =
            |name: &str| event[name].as_u64().with_context(|| format!("{name} in {line}"));
        match event["event"].as_str() {
            Some("read") => {
                let (worker, clock) = (natural("worker")?, natural("clock")?);
                // One that comes later begins where the slowest stands.
                let own = *clocks.entry(worker).or_insert(clock);
                assert_eq!(own, clock, "{line}");
                let slowest = clocks.values().min().copied().unwrap_or(own);
                trace.leads.push(own - slowest);
                unseen.insert(worker, 0);
            }
            Some("update") => {
                let worker = natural("worker")?;
                trace.staleness.push(unseen[&worker]);
                trace.counted.push(natural("staleness")?);
                *clocks.entry(worker).or_default() += 1;
                let others = unseen.iter_mut().filter(|(other, _)| **other != worker);
                others.for_each(|(_, unseen)| *unseen += 1);
            }
            _ => {}
        }
    }
    Ok(trace)
}

/// The trace of a training with a slow worker, which the others run into the bound for. It is there
/// before they come: else they might be done before that.
fn trace_with_a_slow_worker(flags: &[&str]) -> Result<Trace> {
    let job = Job::new()?;
    let port = free_port()?;
    let pace = ["--epochs=1", "--batch-size=64", "--step-time=5", "--straggle=1:40", METRICS];
    let flags = [flags, &pace].concat();
    let start = |rank| job.start(as_rank(async_update(flags.iter().copied())?, rank, 4, port));
    let mut ranks = (0..2).map(start).collect::<Result<Vec<_>>>()?;
    wait_for_steps(&job, 1)?;
    ranks.extend([start(2)?, start(3)?]);
    expect_all_succeed(ranks)?;
    trace(job.directory())
}

#[test]
fn under_ssp_no_lead_and_no_staleness_exceeds_its_bound() -> Result<()> {
    const WORKERS: u64 = 3;
    for bound in [0, 2] {
        let staleness = format!("--staleness={bound}");
        let trace = trace_with_a_slow_worker(&["ssp", &staleness])?;
        assert_eq!(trace.counted, trace.staleness);
        assert_eq!(trace.leads.iter().max(), Some(&bound));
        // Why: async-update/src/server/gate.rs.
        let most = (2 * bound + 1) * (WORKERS - 1);
        ensure!(trace.staleness.iter().all(|&s| s <= most), "{:?}", trace.staleness);
        ensure!(trace.staleness.iter().any(|&s| s > 0), "nothing was stale");
    }
    Ok(())
}

/// S1.28.
#[test]
fn with_sync_every_all_meet_after_so_many_updates() -> Result<()> {
    let trace = trace_with_a_slow_worker(&["async-ps", "--sync-every=4"])?;
    // A worker that may begin its fourth step after a meeting has made three updates more than
    // one that has made none.
    assert_eq!(trace.leads.iter().max(), Some(&3));
    Ok(())
}

/// The fast worker waits longer for the slow one than it would for a silent server, or than a server
/// would for a silent worker.
#[test]
fn a_worker_that_waits_for_a_slow_one_is_not_taken_for_dead_and_takes_no_server_for_dead()
-> Result<()> {
    const TIMEOUT: f64 = 2.0;
    for servers in [1, 2] {
        let (fast, slow) = (servers, servers + 1);
        let flags =
            ["async-ps", "--sync-every=30", "--epochs=1", "--batch-size=128", "--timeout=2"];
        let own = [format!("--servers={servers}"), format!("--straggle={slow}:100")];
        let flags: Vec<_> = flags.into_iter().chain(own.iter().map(String::as_str)).collect();
        let reads = |directory: &Path| {
            let read = |read: &Value| Some((read["worker"] == fast, read["at"].as_f64()?));
            events(directory, 0, "read", read)
        };
        let reads = trained(servers + 2, &flags, reads)?;
        let times: Vec<_> = reads.iter().filter(|(own, _)| *own).map(|(_, at)| at).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        ensure!(longest > TIMEOUT, "with {servers} servers it waited {longest} s at most");
    }
    Ok(())
}

/// S1.23: with one worker five times slower. The updates of ssp are as many because each is that of
/// one worker; batches are no more, for all keep the slow one's pace.
#[test]
fn with_a_slow_worker_asynchronous_ones_make_more_updates() -> Result<()> {
    let rate = |ranks, method, slow| {
        let flags = [method, "--epochs=1", "--step-time=10", slow];
        let outcome = trained(ranks, &flags, outcome)?;
        Ok::<_, anyhow::Error>(number(&outcome, "updates")? / number(&outcome, "seconds")?)
    };
    let together = rate(3, "sync-allreduce", "--straggle=2:40")?;
    for method in ["async-ps", "ssp"] {
        let apart = rate(4, method, "--straggle=3:40")?;
        ensure!(apart >= 2.0 * together, "{method}: {apart} updates/s against {together}");
    }
    Ok(())
}

// === What is sent when ===

/// How often a single worker reads and updates, and what goes over its line.
#[derive(Debug, PartialEq)]
struct Exchanges {
    reads: usize,
    updates: usize,
    sent: u64,
    received: u64,
}

fn exchanges(flags: &[&str]) -> Result<Exchanges> {
    let flags = [flags, &["--epochs=1"]].concat();
    trained(2, &flags, |directory| {
        let count = |kind| Ok::<_, anyhow::Error>(events(directory, 0, kind, |_| Some(()))?.len());
        let traffic = |name: &str| events(directory, 1, "end", |end| end["traffic"][name].as_u64());
        let (sent, received) = (traffic("sent")?, traffic("received")?);
        let [(sent, received)] = sent.into_iter().zip(received).collect::<Vec<_>>()[..] else {
            anyhow::bail!("no traffic");
        };
        Ok(Exchanges { reads: count("read")?, updates: count("update")?, sent, received })
    })
}

/// 250 batches. A request is three numbers of 8 bytes, a grant is one; θ and gradients are floats.
#[test]
fn a_worker_fetches_pushes_and_exchanges_as_often_as_its_flags_say() -> Result<()> {
    const THETA: u64 = 4 * 101_770;
    const REQUEST: u64 = 24;
    const GRANT: u64 = 8;
    // In the end it asks once more, is told that nothing is left, and says goodbye.
    let downpour = |reads: u64, updates: u64| Exchanges {
        reads: reads as usize,
        updates: updates as usize,
        sent: (reads + 1) * REQUEST + updates * (REQUEST + THETA) + REQUEST,
        received: reads * (GRANT + THETA) + GRANT,
    };
    assert_eq!(exchanges(&["async-ps"])?, downpour(250, 250));
    assert_eq!(exchanges(&["async-ps", "--n-fetch=4"])?, downpour(63, 250));
    assert_eq!(exchanges(&["async-ps", "--n-push=4"])?, downpour(250, 63));
    assert_eq!(exchanges(&["async-ps", "--n-fetch=7", "--n-push=9"])?, downpour(36, 28));
    for (flag, exchanged) in [("--tau=1", 250), ("--tau=4", 63)] {
        let expected = Exchanges {
            reads: 1,
            updates: exchanged as usize,
            sent: REQUEST + exchanged * (REQUEST + THETA) + REQUEST,
            received: (GRANT + THETA) * (exchanged + 1),
        };
        assert_eq!(exchanges(&["easgd", flag])?, expected, "{flag}");
    }
    Ok(())
}

// === Who is lost ===

/// Under ssp, the others would wait for the lost one if it still counted.
#[test]
fn when_a_worker_is_killed_the_server_says_so_and_goes_on_with_the_others() -> Result<()> {
    let job = Job::new()?;
    let flags = ["ssp", "--staleness=1", "--step-time=5", "--epochs=4"];
    let mut ranks = start(&job, 4, &flags)?;
    wait_for_steps(&job, 3)?;
    kill(ranks[3].pid(), Signal::SIGKILL)?;
    let gone = format!("[server] worker 3 is gone (rank 3 (pid {}) has ended)", ranks[3].pid());
    let server = ranks[0].wait()?.expect_success()?;
    server.expect_line(&[&gone, "2 workers go on"])?;
    for worker in [1, 2] {
        ranks[worker].wait()?.expect_success()?;
    }
    // What the lost worker had begun others have done: 8,000 digits four times, in batches of 32.
    let batches = number(&outcome(job.directory())?, "batches")?;
    ensure!(batches == 1000.0, "{batches} batches");
    Ok(())
}

/// When it is killed all batches have been given out, and the other worker has asked for more.
#[test]
fn when_a_worker_is_killed_at_the_end_the_other_does_its_batches() -> Result<()> {
    let job = Job::new()?;
    // 250 batches: one worker does 100 of them and computes the first for longer than the other
    // needs for the rest.
    let flags = ["async-ps", "--epochs=1", "--n-fetch=100", "--straggle=1:60000"];
    let mut ranks = start(&job, 3, &flags)?;
    until("worker 2 has done what worker 1 has left", job.deadline(), || {
        Ok((who_updated(job.directory()).unwrap_or_default().len() == 150).then_some(()))
    })?;
    kill(ranks[1].pid(), Signal::SIGKILL)?;
    ranks[0].wait()?.expect_success()?.expect_line(&["worker 1 is gone", "1 worker goes on"])?;
    ranks[2].wait()?.expect_success()?;
    assert_eq!(number(&outcome(job.directory())?, "batches")?, 250.0);
    Ok(())
}

#[test]
fn when_a_worker_is_stopped_the_server_goes_on_after_the_timeout() -> Result<()> {
    let job = Job::new()?;
    let mut ranks = start(&job, 3, &["async-ps", "--step-time=5", "--timeout=2"])?;
    wait_for_steps(&job, 2)?;
    kill(ranks[2].pid(), Signal::SIGSTOP)?;
    let server = ranks[0].wait()?.expect_success()?;
    server.expect_line(&["[server] worker 2 is gone", "is stopped", "1 worker goes on"])?;
    ranks[1].wait()?.expect_success()?;
    Ok(())
}

#[test]
fn when_all_workers_are_killed_the_server_ends() -> Result<()> {
    let job = Job::new()?;
    let mut ranks = start(&job, 3, &["async-ps", "--epochs=100000"])?;
    for worker in [1, 2] {
        wait_for_steps(&job, worker)?;
        kill(ranks[worker].pid(), Signal::SIGKILL)?;
    }
    let killed = Instant::now();
    let server = ranks[0].wait()?.expect_code(1)?;
    ensure!(killed.elapsed() < SOON, "it took {:?}", killed.elapsed());
    server.expect_line(&["[rank 0] error: no worker is left after", "2 of 2 have come"])?;
    Ok(())
}

/// gloo can lose the failure of a send (see `ProcessGroup::send`); then it takes the timeout.
#[test]
fn when_a_server_is_killed_every_worker_ends_and_names_it() -> Result<()> {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let flags = ["async-ps", "--servers=2", "--epochs=100000", "--timeout=5"];
    for (killed, name) in [
        (0, "lost the parameter server, rank 0"),
        (1, "lost the parameter server of shard 1, rank 1"),
    ] {
        let job = Job::new()?;
        let mut ranks = start(&job, 4, &flags)?;
        for worker in [2, 3] {
            wait_for_steps(&job, worker)?;
        }
        kill(ranks[killed].pid(), Signal::SIGKILL)?;
        let begun = Instant::now();
        for worker in [2, 3] {
            let ended = ranks[worker].wait()?.expect_code(1)?;
            ended.expect_line(&[&format!("[rank {worker}] error: "), name])?;
        }
        ranks[1 - killed].wait()?;
        ensure!(begun.elapsed() < TIMEOUT + SOON, "it took {:?}", begun.elapsed());
    }
    Ok(())
}

// === Who comes late ===

#[test]
fn a_worker_that_comes_late_is_served() -> Result<()> {
    let job = Job::new()?;
    let port = free_port()?;
    let flags = ["async-ps", "--servers=2", "--step-time=10", "--epochs=2", METRICS];
    let start = |rank| job.start(as_rank(async_update(flags)?, rank, 4, port));
    let mut ranks = (0..3).map(start).collect::<Result<Vec<_>>>()?;
    wait_for_steps(&job, 2)?;
    ranks.push(start(3)?);
    expect_all_succeed(ranks)?;
    let updated = who_updated(job.directory())?;
    assert_eq!(updated.first(), Some(&2));
    ensure!(updated.contains(&3), "the late worker has contributed nothing");
    Ok(())
}

#[test]
fn a_worker_that_comes_when_all_is_done_is_told_so() -> Result<()> {
    let job = Job::new()?;
    let port = free_port()?;
    let flags = ["async-ps", "--epochs=1", "--timeout=30", METRICS];
    let start = |rank| job.start(as_rank(async_update(flags)?, rank, 3, port));
    let mut ranks = (0..2).map(start).collect::<Result<Vec<_>>>()?;
    ranks[1].wait()?.expect_success()?;
    until("the server has evaluated the model", job.deadline(), || {
        Ok(outcome(job.directory()).ok())
    })?;
    start(2)?.wait()?.expect_success()?;
    let server = ranks[0].wait()?.expect_success()?;
    server.expect_line(&["all is done", "workers [2], which have not come"])?;
    ensure!(!who_updated(job.directory())?.contains(&2), "it has changed an evaluated model");
    Ok(())
}

// === What they refuse ===

#[test]
fn flags_that_make_no_sense_are_refused() -> Result<()> {
    for (flags, texts) in [
        (&["ssp", "--staleness=-1"][..], ["--staleness", "-1 is not in 0.."]),
        (&["async-ps", "--n-push=0"], ["--n-push", "0 is not in 1.."]),
        (&["async-ps", "--n-fetch=0"], ["--n-fetch", "0 is not in 1.."]),
        (&["async-ps", "--sync-every=0"], ["--sync-every", "0 is not in 1.."]),
        (&["async-ps", "--servers=0"], ["--servers", "0 is not in 1.."]),
        (&["easgd", "--tau=0"], ["--tau", "0 is not in 1.."]),
    ] {
        let program = async_update(flags.iter().copied())?;
        Job::new()?.run(program)?.expect_code(2)?.expect_messages(&texts)?;
    }
    Ok(())
}

#[test]
fn a_job_in_which_nobody_could_train_is_refused() -> Result<()> {
    for (ranks, flags, text) in [
        (1, &["async-ps"][..], "--servers is 1 in a world of 1, but must be below"),
        (3, &["ssp", "--servers=3"], "--servers is 3 in a world of 3, but must be below"),
        (2, &["async-ps", "--servers=200000"], "but must be at most 101770, one for each"),
        (3, &["easgd", "--straggle=3:40"], "a rank that trains, from 1 to 2"),
        (3, &["easgd", "--straggle=0:40"], "a rank that trains, from 1 to 2"),
        (2, &["easgd", "--rho=20"], "--rho is 20, with --lr 0.1, but must be such that"),
        (2, &["easgd", "--rho=0"], "--rho is 0, with --lr 0.1, but must be such that"),
    ] {
        // It meets nobody before it refuses.
        let program = as_rank(async_update(flags.iter().copied())?, 0, ranks, free_port()?);
        Job::new()?.run(program)?.expect_code(1)?.expect_messages(&[text])?;
    }
    Ok(())
}
