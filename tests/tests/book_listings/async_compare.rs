//! All methods of async-update side by side, in the chapter "Synchronous or asynchronous".

use super::*;

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
            let columns = columns.trim_end_matches(" %").split_whitespace();
            let number = |word: &str| word.parse().with_context(|| format!("{word} in {line}"));
            let columns = columns.map(number).collect::<Result<Vec<f64>>>()?;
            let [_, updates, batches, staleness, _, loss, accuracy] = columns[..] else {
                bail!("{line} has not seven columns");
            };
            let table = tables.last_mut().context("a row before the first table")?;
            table.insert(method, Row { updates, batches, staleness, loss, accuracy });
        }
    }
    Ok(tables)
}

/// S1.22, S1.23.
#[test]
fn all_methods_come_to_what_the_book_shows_with_and_without_a_slow_worker() -> Result<()> {
    let job = Job::new()?;
    let (shown, mut program) = first_command("async_compare")?;
    program.arg(UNHURRIED);
    // So slow that workers wait for it longer than for a processor.
    let ended = job.run(cut_short(program, &["--slowdown=40"]))?.expect_success()?;
    let tables = tables(&ended.stdout)?;
    let [equal, slow] = &tables[..] else { bail!("{} tables", tables.len()) };
    for table in [equal, slow] {
        assert_eq!(table.len(), 11, "{}", ended.stdout);
        for (method, row) in table {
            ensure!(row.loss.is_finite() && row.loss > 0.0, "{method}: the loss is {}", row.loss);
            // Random guesses are right in a tenth of all cases.
            ensure!((50.0..=100.0).contains(&row.accuracy), "{method}: {} % right", row.accuracy);
        }
        for method in ["sync-allreduce", "sync-ps", "ring"] {
            assert_eq!(table[method].staleness, 0.0, "{method}");
        }
        for method in ["ssp --staleness=4", "async-ps", "easgd --tau=4", "hogwild"] {
            ensure!(table[method].staleness > 0.0, "{method}: nothing was stale");
        }
    }
    // With one of four workers 40 times slower, all together make 10 batches a second if they wait for it, and 302 if
    // they do not. A machine with fewer processors than workers makes fewer.
    let together = &slow["sync-allreduce"];
    for method in ["async-ps", "easgd --tau=4", "hogwild"] {
        let apart = &slow[method];
        ensure!(apart.batches > 1.5 * together.batches, "{method}: {} batches/s", apart.batches);
        ensure!(apart.updates > 2.0 * together.updates, "{method}: {} updates/s", apart.updates);
    }
    // With a bound all keep pace with the slow worker, but each batch is an update.
    let apart = slow["ssp --staleness=4"].updates;
    ensure!(apart > 2.0 * together.updates, "ssp: {apart} updates/s");
    let svg = |name: &str| job.text(format!("plots/{name}.svg"));
    expect(&[
        ("async_compare.txt", &(shown + &ended.stdout), &same_words),
        ("async_loss_time_slow.svg", &svg("loss-time-slow")?, &same_names),
        ("async_loss_updates.svg", &svg("loss-updates")?, &same_names),
        ("async_batches.svg", &svg("batches")?, &same_names),
        ("async_staleness.svg", &svg("staleness")?, &same_names),
    ])
}
