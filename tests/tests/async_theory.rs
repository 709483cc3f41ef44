//! The subcommands of async-update that need no ranks: what theory says about the article's guesses,
//! and Hogwild. The article's stories are in `book_listings`.

use crate::prelude::*;

/// What `quadratic` prints, and its picture. It takes half a minute, so the tests that look at it share one run.
pub fn quadratic() -> Result<Arc<(String, String)>> {
    static RUN: Shared<(String, String)> = Shared::new();
    RUN.get((), || printed_and_written(async_update(["quadratic", "--plot", "."])?, "momentum.svg"))
}

/// S1.27, S1.29. Only the results of threads differ from run to run.
#[test]
fn momentum_divergence_and_regret_are_where_theory_puts_them() -> Result<()> {
    let (text, picture) = &*quadratic()?;
    let (threads, steady): (Vec<_>, Vec<_>) = text.lines().partition(|l| l.contains("  threads  "));
    insta::assert_snapshot!("async_quadratic", steady.join("\n"));

    let queue = steady.iter().filter(|line| line.contains("  queue  "));
    let rows: Vec<_> = queue.chain(&threads).collect();
    assert_eq!(rows.len(), 6);
    for row in rows {
        // M, what ran, 1 - 1/M, the momentum found, its standard error.
        let cells: Vec<_> = row.split_whitespace().collect();
        let number = |index: usize| cells[index].parse::<f64>();
        let (threads, theory, found, error) =
            (cells[1] == "threads", number(2)?, number(3)?, number(4)?);
        // Four standard errors, each rounded when it was printed. Threads get 0.03 more: on a busy
        // machine they wake up late, and then the time of their work is not exponential.
        let tolerance = 4.0 * (error + 1e-4) + if threads { 0.03 } else { 0.0 };
        ensure!((found - theory).abs() < tolerance, "{found} ± {error}, not {theory}");
        // Precise enough to tell 1 - 1/M from that of the next number of workers.
        ensure!(error < 0.03, "{found} ± {error}");
    }

    ensure!(picture.contains("8 workers, no momentum") && picture.contains("momentum 0.875"));
    Ok(())
}

/// One of the numbers of each of a thread's updates.
fn of_updates(job: &Job, thread: usize, name: &str) -> Result<Vec<u64>> {
    events(job.directory(), thread, "update", |update| update[name].as_u64())
}

/// With the settings of the README.
#[test]
fn hogwild_names_nine_digits_of_ten_with_every_update_counted_once() -> Result<()> {
    const THREADS: usize = 4;
    const UPDATES: u64 = 5 * 8000 / 32;
    // The threads wait in each step, so they work at the same time even on few cores.
    let flags = "hogwild --lr=0.05 --epochs=5 --threads=4 --step-time=5 --metrics=metrics";
    let job = Job::done(async_update(flags.split(' '))?)?;
    let accuracy = events(job.directory(), 0, "outcome", |event| event["accuracy"].as_f64())?;
    ensure!(accuracy.len() == 1 && accuracy[0] >= 0.9, "{accuracy:?}");

    let all = |name| (0..THREADS).map(|it| of_updates(&job, it, name)).collect::<Result<Vec<_>>>();
    let (mut versions, staleness) = (all("version")?.concat(), all("staleness")?.concat());
    versions.sort_unstable();
    assert_eq!(versions, (0..UPDATES).collect::<Vec<_>>());
    // With four threads, the parameters have nearly always changed since they were read.
    let stale = staleness.iter().filter(|updates| **updates > 0).count();
    ensure!(stale as u64 > UPDATES / 2, "only {stale} gradients were stale");
    Ok(())
}

#[test]
fn a_slow_thread_makes_fewer_updates_and_staler_ones() -> Result<()> {
    let flags = "hogwild --threads=3 --epochs=1 --step-time=5 --straggle=2:495 --metrics=metrics";
    let job = Job::done(async_update(flags.split(' '))?)?;
    let staleness = |thread| of_updates(&job, thread, "staleness");
    let (fast, slow) = (staleness(0)?, staleness(2)?);
    let mean = |values: &[u64]| values.iter().sum::<u64>() as f64 / values.len() as f64;
    // It takes a hundred times as long. A busy machine slows the others down.
    ensure!(3 * slow.len() < fast.len(), "{} and {}", slow.len(), fast.len());
    ensure!(mean(&slow) > 3.0 * mean(&fast), "{slow:?} and {fast:?}");
    Ok(())
}

cases! {
    fn what_cannot_work_is_refused_with_what_was_found_and_expected() =
        expect_refusals(|line| async_update(line.split(' ')), &[
            ("trace case3", 2, ["case3", "case1"]),
            ("quadratic --workers 1", 2, ["1 is not in", "2..=64"]),
            ("quadratic --workers 2,3,4,5,6 --plot .", 1, ["--workers has 5", "at most 4"]),
            ("quadratic --plot /dev/null/plots", 1, ["create directory", "/dev/null/plots"]),
            ("hogwild --threads 0", 2, ["--threads", "0 is not in 1..=1024"]),
            ("hogwild --threads 70000", 2, ["--threads", "70000 is not in 1..=1024"]),
            ("hogwild --device cuda", 1, ["device is cuda", "without the feature `cuda`"]),
            ("hogwild --straggle 4:10", 1, ["rank 4", "from 0 to 3"]),
            ("hogwild --straggle 4", 2, ["RANK:MS", "\"4\""]),
        ]);
    fn hogwild_is_one_process() =
        expect_refusal(launch(2, &async_update(["hogwild"])?)?, 1,
            &["hogwild is one process", "2 ranks were started", "without a launcher"]);
}

/// The other thread alone would run for a day.
#[test]
fn when_a_thread_fails_the_others_end() -> Result<()> {
    let job = Job::new()?;
    // A directory where the second thread would create its file.
    fs::create_dir_all(job.path("metrics/rank1.jsonl"))?;
    let flags = "hogwild --threads=2 --epochs=34560 --step-time=10 --metrics=metrics";
    let ended = job.run(async_update(flags.split(' '))?)?.expect_code(1)?;
    ended.expect_messages(&["thread 1 failed", "metrics/rank1.jsonl"])
}
