//! Chapter "Synchronous or asynchronous".

use super::*;
use tests::async_update::{started, trained};

/// The program's path in commands of the book that must not use a launcher.
const BY_HAND: &str = "target/release/async-update";

#[test]
fn the_articles_first_story_is_as_the_book_tells_it() -> Result<()> {
    let (shown, program) = first_command("async_case1")?;
    let text = printed(program)?;
    let (story, others) = text.split_once("With another optimizer").context("no table")?;
    expect_listing("async_case1.txt", &format!("{shown}{}\n", story.trim_end()), EXACT)?;
    // Adam divides and takes square roots, so its numbers are rounded.
    expect_listing("async_optimizers.txt", &format!("With another optimizer{others}"), LAST_DIGIT)
}

#[test]
fn ranks_may_be_threads_and_get_the_same_weights() -> Result<()> {
    let listing = replayed("ranks_as_threads.txt")?;
    let weights = listing.lines().filter_map(|line| line.split_once("weights ")?.1.split_once(','));
    let weights: Vec<_> = weights.map(|(weights, _)| weights).collect();
    assert_eq!(weights.len(), 4);
    assert!(weights.iter().all(|sum| *sum == weights[0]), "{listing}");
    expect_listing("ranks_as_threads.txt", &listing, EXACT)
}

cases! {
    fn the_articles_second_story_is_as_the_book_tells_it() = expect_replay("async_case2.txt", EXACT);
    fn a_slow_worker_costs_synchronous_ones_what_the_book_shows() = expect_words_of_replay("async_slow_sync.txt");
    fn a_slow_worker_costs_asynchronous_ones_what_the_book_shows() = expect_words_of_replay("async_slow_ps.txt");
    fn a_slow_worker_costs_those_with_a_bound_what_the_book_shows() = expect_words_of_replay("async_slow_ssp.txt");
    fn threads_without_a_lock_are_as_the_book_shows() = expect_words_of_replay("async_slow_hogwild.txt");
}

/// S1.23: the more workers, the staler the gradients, and the worse the result.
#[test]
fn the_price_of_stale_gradients_is_as_the_book_shows() -> Result<()> {
    const FLAGS: &str = "async-ps --lr 0.2 --epochs 1 --step-time 5";
    let mut listing = format!(
        "$ for n in 2 3 5 9; do\n    cargo launch -n $n async-update -- {FLAGS} | {FOR_LOSS}\n  done\n"
    );
    for ranks in [2, 3, 5, 9] {
        let text = printed(launch(ranks, &async_update(FLAGS.split(' '))?)?)?;
        listing += &format!("{}\n", for_loss(&text)?);
    }
    for typed in [
        "-n 9 async-update -- async-ps --lr 0.2 --staleness-aware --epochs 1 --step-time 5",
        "-n 4 async-update -- sync-allreduce --lr 0.8 --epochs 1 --step-time 5",
    ] {
        listing += &shown(&format!("cargo launch {typed} | {FOR_LOSS}"))?;
    }
    let losses = numbers_of_loss(&listing)?;
    let [one, _, _, eight, aware, together] = losses[..] else { bail!("{losses:?}") };
    ensure!(eight > 2.0 * one, "eight workers lose {eight}, one loses {one}");
    ensure!(aware < eight, "{aware} with smaller steps for stale gradients, {eight} without");
    ensure!(together > 2.0 * one, "four lose {together} with the sum of their steps");
    expect(&[("async_price.txt", &listing, &same_words)])
}

#[test]
fn diloco_sends_a_hundred_times_less_and_loses_at_most_a_point() -> Result<()> {
    let listing = replayed("async_diloco.txt")?;
    let numbers = |before: &str| -> Result<Vec<f64>> {
        let after = listing.split(before).skip(1);
        let digits =
            |text: &str| text.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok();
        after.map(|text| digits(text).context("no number")).collect()
    };
    let (sent, accuracy) = (numbers("sent ")?, numbers("accuracy=")?);
    let ([ring, diloco], [of_ring, of_diloco, _]) = (&sent[..], &accuracy[..]) else {
        bail!("{listing}")
    };
    ensure!(ring / diloco >= 100.0, "{ring} bytes, and {diloco} bytes with DiLoCo");
    ensure!(of_ring - of_diloco <= 0.01, "from {of_ring} to {of_diloco}");
    expect(&[("async_diloco.txt", &listing, &same_words)])
}

/// The bytes that go through a server; with the free gate they do not depend on chance.
#[test]
fn the_bytes_of_a_server_are_as_the_book_shows() -> Result<()> {
    let (mut commands, mut files, mut ends) = (String::new(), String::new(), String::new());
    for (name, flags) in [("one", ""), ("two", " --servers 2"), ("four", " --n-fetch 4 --n-push 4")]
    {
        let flags = format!("async-ps{flags} --epochs 1");
        let metrics = trained(5, &flags)?.text("metrics/rank0.jsonl")?;
        let given = format!("{flags} --metrics {name}");
        commands += &format!("$ cargo launch -n 5 async-update -- {given} > /dev/null\n");
        files += &format!(" {name}/rank0.jsonl");
        ends += &format!("{}\n", metrics.lines().last().context("no line")?);
    }
    expect_listing("async_shards.txt", &format!("{commands}$ tail -qn 1{files}\n{ends}"), EXACT)
}

/// The commands by which a reader does what [`started`] does. The flags need a timeout, since gloo can miss that the
/// rank it sends to has ended (see `ProcessGroup::send`).
fn start_shown(ranks: usize, flags: &str) -> String {
    let last = ranks - 1;
    format!(
        "$ export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE={ranks}\n$ for rank in $(seq 0 {last}); do RANK=$rank {BY_HAND} {flags} & done\n"
    )
}

#[test]
fn a_killed_worker_is_missed_as_the_book_shows() -> Result<()> {
    let job = Job::new()?;
    let flags = "ssp --staleness 1 --step-time 5 --timeout 10";
    let mut ranks = started(&job, 4, flags)?;
    stop_after_first_step(&job, &ranks, 3, 1..3)?;
    wait_for_steps(&job, 1..3, 1)?;
    kill(ranks[3].pid(), Signal::SIGKILL)?;
    let server = ranks[0].wait()?.expect_success()?;
    let gone = format!("[server] worker 3 is gone (rank 3 (pid {}) has ended)", ranks[3].pid());
    server.expect_line(&[&gone, "2 workers go on"])?;
    ranks[1..3].iter_mut().try_for_each(|worker| worker.wait()?.expect_success().map(drop))?;
    let outcome = server.stdout.lines().next().context("no outcome")?;
    // Others have done what the lost worker had begun: 8,000 digits three times, in batches of 32.
    ensure!(outcome.contains(" from 750 batches"), "{outcome}");
    let listing =
        format!("{}$ kill -9 %4\n{}{outcome}\n{CUT}", start_shown(4, flags), server.stderr);
    expect(&[("async_worker_killed.txt", &listing, &same_words)])
}

#[test]
fn a_killed_server_is_missed_as_the_book_shows() -> Result<()> {
    let job = Job::new()?;
    let flags = "async-ps --step-time 5 --epochs 1000 --timeout 10";
    let mut ranks = started(&job, 3, flags)?;
    wait_for_steps(&job, 1..3, 5)?;
    kill(ranks[0].pid(), Signal::SIGKILL)?;
    let mut listing = format!("{}$ kill -9 %1\n", start_shown(3, flags));
    for worker in [1, 2] {
        let ended = ranks[worker].wait()?.expect_code(1)?;
        // The text before it is gloo's, and depends on what the worker was doing.
        let (_, lost) = ended.stderr.split_once(" (this worker").context("nobody is lost")?;
        listing += &format!("[rank {worker}] error: … (this worker{lost}");
    }
    expect(&[("async_server_killed.txt", &listing, &same_words)])
}

#[test]
fn a_late_worker_is_served_as_the_book_shows() -> Result<()> {
    let job = Job::new()?;
    let port = free_port()?;
    let flags = "async-ps --step-time 10 --metrics metrics";
    let start = |rank| job.start(as_rank(async_update(flags.split(' '))?, rank, 4, port));
    let mut ranks = (0..3).map(start).collect::<Result<Vec<_>>>()?;
    wait_for_steps(&job, 2..3, 100)?;
    ranks.push(start(3)?);
    // Otherwise the others might be done before it begins.
    stop_after_first_step(&job, &ranks, 3, 1..3)?;
    kill(ranks[3].pid(), Signal::SIGCONT)?;
    let server = ranks[0].wait()?.expect_success()?;
    let outcome = server.stdout.lines().next().context("no outcome")?;

    let counted = "grep '\"update\"' metrics/rank0.jsonl | grep -o '\"worker\":.' | sort | uniq -c";
    let counts = job.run(shell(counted))?.expect_success()?.stdout;
    let workers = events(job.directory(), 0, "update", |update| update["worker"].as_u64())?;
    let [late, early] = [3, 2].map(|worker| workers.iter().filter(|it| **it == worker).count());
    ensure!(0 < late && late < early, "{late} updates of the late worker, {early} of another");
    let listing = format!(
        "{}$ RANK=3 {BY_HAND} {flags}    # a hundred steps later\n{outcome}\n{CUT}$ {counted}\n{counts}",
        start_shown(4, flags).replace("seq 0 3", "seq 0 2")
    );
    expect(&[("async_late.txt", &listing, &same_words)])
}
