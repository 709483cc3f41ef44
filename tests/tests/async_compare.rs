//! All methods of async-update side by side.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use tests::Job;
use tests::programs::{as_rank, async_update, free_port};

/// The columns of a row, after the method's name.
struct Row {
    updates: f64,
    batches: f64,
    staleness: f64,
    loss: f64,
    /// In percent.
    accuracy: f64,
}

/// The tables that `compare` prints, each by the methods' names.
fn tables(stdout: &str) -> Result<Vec<BTreeMap<&str, Row>>> {
    let mut tables = Vec::new();
    for line in stdout.lines() {
        if line.starts_with("method ") {
            tables.push(BTreeMap::new());
        } else if line.ends_with(" %") {
            let (method, columns) = line.split_once("  ").context("a row without columns")?;
            let columns: Vec<f64> = columns
                .trim_end_matches(" %")
                .split_whitespace()
                .map(|column| column.parse().with_context(|| format!("{column} in {line}")))
                .collect::<Result<_>>()?;
            let [_, updates, batches, staleness, _, loss, accuracy] = columns[..] else {
                anyhow::bail!("{line} has not seven columns");
            };
            let table = tables.last_mut().context("a row before the first table")?;
            table.insert(method, Row { updates, batches, staleness, loss, accuracy });
        }
    }
    Ok(tables)
}

/// S1.22, S1.23.
#[test]
fn compare_trains_with_every_method_with_and_without_a_slow_worker() -> Result<()> {
    let job = Job::new()?;
    let pace = ["--workers=2", "--epochs=1", "--step-time=5", "--slowdown=5"];
    let program = async_update(["compare", "--plot=plots"].into_iter().chain(pace))?;
    let ended = job.run(program)?.expect_success()?;
    let tables = tables(&ended.stdout)?;
    let [equal, slow] = &tables[..] else { anyhow::bail!("{} tables", tables.len()) };
    for table in [equal, slow] {
        assert_eq!(table.len(), 11, "{}", ended.stdout);
        for (method, row) in table {
            ensure!(row.loss.is_finite() && row.loss > 0.0, "{method}: the loss is {}", row.loss);
            // Whoever guesses is right in a tenth of all cases.
            ensure!((50.0..=100.0).contains(&row.accuracy), "{method}: {} % right", row.accuracy);
        }
        for method in ["sync-allreduce", "sync-ps", "ring"] {
            assert_eq!(table[method].staleness, 0.0, "{method}");
        }
        for method in ["ssp --staleness=4", "async-ps", "easgd --tau=4", "hogwild"] {
            ensure!(table[method].staleness > 0.0, "{method}: nothing was stale");
        }
    }
    // Who waits for the slow worker makes a fifth of the batches a second; of two that do not wait,
    // the other still makes its half.
    for method in ["sync-allreduce", "async-ps", "easgd --tau=4", "hogwild"] {
        let share = slow[method].batches / equal[method].batches;
        let waits = method == "sync-allreduce";
        ensure!((share < 0.4) == waits, "{method}: {share} of the batches a second");
    }
    ensure!(slow["async-ps"].updates > 2.0 * slow["sync-allreduce"].updates, "{}", ended.stdout);
    for (chart, axis) in [
        ("loss-time", "time (s)"),
        ("loss-time-slow", "time (s)"),
        ("loss-updates", "updates"),
        ("updates", "updates a second"),
        ("batches", "batches a second"),
        ("staleness", "updates of others"),
    ] {
        let svg = fs::read_to_string(job.directory().join(format!("plots/{chart}.svg")))?;
        ensure!(svg.contains("async-ps"), "{chart}.svg does not name async-ps");
        ensure!(svg.contains(axis), "{chart}.svg does not show {axis}");
    }
    Ok(())
}

#[test]
fn compare_refuses_what_it_cannot_do_before_it_trains() -> Result<()> {
    for (flags, code, texts) in [
        (&["--workers=1"][..], 2, ["--workers", "1 is not in 2..=64"]),
        (&["--workers=65"], 2, ["--workers", "65 is not in 2..=64"]),
        (&["--slowdown=1"], 2, ["--slowdown", "1 is not in 2..=1000"]),
        (&["--slowdown=1001"], 2, ["--slowdown", "1001 is not in 2..=1000"]),
        (&["--step-time=0"], 2, ["--step-time", "0 is not in 1..=60000"]),
        (&["--step-time=60001"], 2, ["--step-time", "60001 is not in 1..=60000"]),
        (&["--timeout=18446744073709551615"], 2, ["--timeout", "too large"]),
        (&["--plot=/dev/null/plots"], 1, ["create directory", "/dev/null/plots"]),
        (&["--plot=/proc"], 1, ["cannot write to the directory of", "/proc/loss-time.svg"]),
    ] {
        let program = async_update(["compare"].into_iter().chain(flags.iter().copied()))?;
        Job::new()?.run(program)?.expect_code(code)?.expect_messages(&texts)?;
    }
    let as_a_rank = as_rank(async_update(["compare"])?, 0, 2, free_port()?);
    let ended = Job::new()?.run(as_a_rank)?.expect_code(1)?;
    ended.expect_messages(&["run it without a launcher"])?;
    Ok(())
}
