//! The methods of async-update in which a server keeps the model: which rank waits for which, how
//! much they send, and what they reject.

use crate::prelude::*;
use tests::async_update::{outcome, trained, trained_with_late};

/// S1.25: if nobody else updates, nothing is stale. The server's update is then the step of a
/// single process, in the same order of operations, however θ is divided.
#[test]
fn a_single_worker_takes_the_steps_of_plain_sgd_to_the_bit() -> Result<()> {
    let curve = |ranks, flags: &str| {
        let job = trained(ranks, flags)?;
        let bits = |step: &Value| Some((step["loss"].as_f64()?, step["theta"].as_f64()?));
        let steps = events(job.directory(), ranks - 1, "step", bits)?;
        Ok::<_, anyhow::Error>((steps, outcome(&job, "loss")?, outcome(&job, "batches")?))
    };
    let expected = curve(1, "sync-allreduce --epochs=1")?;
    ensure!(expected.0.len() > 100, "it took {} steps", expected.0.len());
    assert_eq!(curve(2, "async-ps --epochs=1")?, expected);
    assert_eq!(curve(3, "async-ps --epochs=1 --servers=2")?, expected);
    assert_eq!(curve(2, "ssp --epochs=1 --staleness=0")?, expected);
    Ok(())
}

/// What a server's trace says, computed from the order of its events alone.
struct Trace {
    /// For each read, by how many updates the reader was ahead of the slowest worker.
    leads: Vec<u64>,
    /// For each update, the number of other workers' updates since its worker's last read.
    staleness: Vec<u64>,
    /// The staleness that the server itself counted.
    counted: Vec<u64>,
}

fn trace(directory: &Path) -> Result<Trace> {
    let mut trace = Trace { leads: vec![], staleness: vec![], counted: vec![] };
    let mut clocks = BTreeMap::new();
    let mut unseen = BTreeMap::new();
    for line in fs::read_to_string(directory.join("metrics/rank0.jsonl"))?.lines() {
        let event: Value = serde_json::from_str(line)?;
        let whole = |name: &str| event[name].as_u64().with_context(|| format!("{name} in {line}"));
        match event["event"].as_str() {
            Some("read") => {
                let (worker, clock) = (whole("worker")?, whole("clock")?);
                // A worker that joins later starts at the slowest worker's clock.
                let own = *clocks.entry(worker).or_insert(clock);
                assert_eq!(own, clock, "{line}");
                let slowest = clocks.values().min().copied().unwrap_or(own);
                trace.leads.push(own - slowest);
                unseen.insert(worker, 0);
            }
            Some("update") => {
                let worker = whole("worker")?;
                trace.staleness.push(unseen[&worker]);
                trace.counted.push(whole("staleness")?);
                *clocks.entry(worker).or_default() += 1;
                let others = unseen.iter_mut().filter(|(other, _)| **other != worker);
                others.for_each(|(_, unseen)| *unseen += 1);
            }
            _ => {}
        }
    }
    Ok(trace)
}

/// The trace of a training in which `--straggle` makes worker 1 slow, so that the others reach the bound. It
/// starts before them, since otherwise they might finish before it has begun.
fn trace_with_a_slow_worker(flags: &str) -> Result<Trace> {
    let flags = format!("{flags} --epochs=1 --batch-size=250 --step-time=5");
    trace(trained_with_late(4, &flags, 2, 1)?.directory())
}

#[test]
fn under_ssp_no_lead_and_no_staleness_exceeds_its_bound() -> Result<()> {
    const WORKERS: u64 = 3;
    for bound in [0, 2] {
        let trace = trace_with_a_slow_worker(&format!("ssp --staleness={bound} --straggle=1:600"))?;
        assert_eq!(trace.counted, trace.staleness);
        assert_eq!(trace.leads.iter().max(), Some(&bound));
        // For the derivation see async-update/src/server/gate.rs.
        let most = (2 * bound + 1) * (WORKERS - 1);
        ensure!(trace.staleness.iter().all(|&s| s <= most), "{:?}", trace.staleness);
        ensure!(trace.staleness.iter().any(|&s| s > 0), "nothing was stale");
    }
    Ok(())
}

/// S1.28.
#[test]
fn with_sync_every_all_meet_after_so_many_updates() -> Result<()> {
    // A worker about to begin its fourth step after a meeting has made three updates more than one that has made none.
    let trace = trace_with_a_slow_worker("async-ps --sync-every=4 --straggle=1:1000")?;
    assert_eq!(trace.leads.iter().max(), Some(&3));
    Ok(())
}

/// Their clocks may begin differently on each server, so only one server may decide where all meet.
#[test]
fn with_sync_every_workers_that_come_late_do_not_stop_several_servers() -> Result<()> {
    let flags = "async-ps --sync-every=4 --servers=2 --epochs=3 --step-time=5 --straggle=2:25";
    let job = trained_with_late(6, flags, 3, 5)?;
    let updated = events(job.directory(), 0, "update", |update| update["worker"].as_u64())?;
    ensure!((2..6).all(|worker| updated.contains(&worker)), "{updated:?}");
    Ok(())
}

/// The fast worker waits longer for the slow one than it would wait for a silent server, or a
/// server for a silent worker.
#[test]
fn waiting_for_a_slow_worker_makes_neither_worker_nor_server_look_dead() -> Result<()> {
    const TIMEOUT: f64 = 5.0;
    for servers in [1, 2] {
        // The slow one comes first; otherwise there might be no batch left when the fast one has waited.
        let (slow, fast) = (servers, servers + 1);
        let flags = format!(
            "async-ps --sync-every=8 --epochs=1 --batch-size=400 --timeout=5 \
             --servers={servers} --straggle={slow}:2000"
        );
        let job = trained_with_late(servers + 2, &flags, fast, 1)?;
        let read = |read: &Value| Some((read["worker"] == fast, read["at"].as_f64()?));
        let reads = events(job.directory(), 0, "read", read)?;
        let times: Vec<_> = reads.iter().filter(|(own, _)| *own).map(|(_, at)| at).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        ensure!(longest > TIMEOUT, "with {servers} servers it waited {longest} s at most");
    }
    Ok(())
}

/// What a single worker does: its reads, its updates, the bytes that it sends and those that it receives.
fn exchanges(flags: &str) -> Result<[u64; 4]> {
    let job = trained(2, &format!("{flags} --epochs=1"))?;
    let count = |kind| events(job.directory(), 0, kind, |_| Some(())).map(|all| all.len() as u64);
    let bytes = |end: &Value, what: &str| end["traffic"][what].as_u64();
    let traffic = |end: &Value| Some((bytes(end, "sent")?, bytes(end, "received")?));
    let ends = events(job.directory(), 1, "end", traffic)?;
    let [(sent, received)] = ends[..] else { bail!("no traffic") };
    Ok([count("read")?, count("update")?, sent, received])
}

/// 250 batches. A request is 24 bytes, a grant 8; θ and gradients are floats.
#[test]
fn a_worker_fetches_pushes_and_exchanges_as_often_as_its_flags_say() -> Result<()> {
    const THETA: u64 = 4 * 101_770;
    const REQUEST: u64 = 24;
    const GRANT: u64 = 8;
    // At the end it asks once more, is told that nothing is left, and signs off.
    let downpour = |reads: u64, updates: u64| {
        let sent = (reads + 1) * REQUEST + updates * (REQUEST + THETA) + REQUEST;
        [reads, updates, sent, reads * (GRANT + THETA) + GRANT]
    };
    assert_eq!(exchanges("async-ps")?, downpour(250, 250));
    assert_eq!(exchanges("async-ps --n-fetch=4")?, downpour(63, 250));
    assert_eq!(exchanges("async-ps --n-push=4")?, downpour(250, 63));
    assert_eq!(exchanges("async-ps --n-fetch=7 --n-push=9")?, downpour(36, 28));
    for (flags, exchanged) in [("easgd --tau=1", 250), ("easgd --tau=4", 63)] {
        let sent = REQUEST + exchanged * (REQUEST + THETA) + REQUEST;
        let expected = [1, exchanged, sent, (GRANT + THETA) * (exchanged + 1)];
        assert_eq!(exchanges(flags)?, expected, "{flags}");
    }
    Ok(())
}

#[test]
fn a_job_in_which_nobody_could_train_is_refused() -> Result<()> {
    for (ranks, flags, text) in [
        (1, "async-ps", "--servers is 1 in a world of 1, but must be below"),
        (3, "ssp --servers=3", "--servers is 3 in a world of 3, but must be below"),
        (2, "async-ps --servers=200000", "--servers is 200000 in a world of 2, but must be below"),
        (3, "easgd --straggle=3:40", "a rank that trains, from 1 to 2"),
        (3, "easgd --straggle=0:40", "a rank that trains, from 1 to 2"),
        (2, "easgd --rho=20", "--rho is 20, with --lr 0.1, but must be such that"),
        (2, "easgd --rho=0", "--rho is 0, with --lr 0.1, but must be such that"),
    ] {
        // It fails before it meets any other rank.
        let program = as_rank(async_update(flags.split(' '))?, 0, ranks, free_port()?);
        expect_refusal(program, 1, &[text])?;
    }
    Ok(())
}
