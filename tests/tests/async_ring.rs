//! The ring of async-update: the bytes on its links, its sums, and the cost of a message.

use crate::prelude::*;

/// The flags of trainings whose bytes are counted: their batches are equally large.
pub const TRAFFIC: &str = "--epochs 1 --batch-size 250";

/// K: the size of the model in bytes, which is also that of its gradient.
const MODEL: usize = 101_770 * 4;

pub struct Traffic {
    pub printed: String,
    /// The bytes that each rank sends and receives in each step.
    of_a_step: Vec<(usize, usize)>,
}

/// Trains as the book does, and with metrics.
pub fn traffic(method: &str, ranks: usize) -> Result<Arc<Traffic>> {
    static RUNS: Shared<Traffic> = Shared::new();
    RUNS.get((method, ranks), || {
        let job = Job::new()?;
        let flags = format!("{method} {TRAFFIC} --metrics metrics");
        let program = launch(ranks, &async_update(flags.split(' '))?)?;
        let printed = job.run(program)?.expect_success()?.stdout;
        Ok(Traffic { printed, of_a_step: of_a_step(&job, ranks)? })
    })
}

fn of_a_step(job: &Job, ranks: usize) -> Result<Vec<(usize, usize)>> {
    let of_rank = |rank| {
        let steps = events(job.directory(), rank, "step", |step| step["step"].as_u64())?.len();
        let ends = events(job.directory(), rank, "end", |end| Some(end["traffic"].clone()))?;
        let [end] = &ends[..] else { bail!("rank {rank} has {} ends", ends.len()) };
        let of_a_step = |what: &str| {
            let bytes = end[what].as_u64().with_context(|| format!("{what} in {end}"))? as usize;
            ensure!(bytes.is_multiple_of(steps), "{bytes} bytes in {steps} equal steps");
            Ok(bytes / steps)
        };
        Ok((of_a_step("sent")?, of_a_step("received")?))
    };
    (0..ranks).map(of_rank).collect()
}

/// S1.33: in and out of the server together 2K for 2 ranks, 6K for 4, 8K for 5 and 14K for 8.
#[test]
fn two_models_for_each_worker_go_through_the_parameter_server() -> Result<()> {
    for (ranks, models) in [(2, 2), (4, 6), (5, 8), (8, 14)] {
        let traffic = &traffic("sync-ps", ranks)?.of_a_step;
        let (sent, received) = traffic[0];
        assert_eq!(sent + received, models * MODEL, "{ranks} ranks");
        assert_eq!(sent, received);
        traffic[1..].iter().for_each(|worker| assert_eq!(*worker, (MODEL, MODEL)));
    }
    Ok(())
}

/// S1.40: 2K(N − 1)/N if the N chunks are equally long. In general, rank r sends every chunk twice,
/// except chunk r + 1, whose sum it has when scatter-reduce ends, and chunk r + 2, which it gets
/// last. It receives every chunk twice except r and r + 1.
#[test]
fn a_rank_of_the_ring_sends_all_chunks_twice_but_two_of_them_once() -> Result<()> {
    for ranks in [2, 4, 5, 8] {
        let traffic = &traffic("ring", ranks)?.of_a_step;
        let chunk = |number: usize| {
            let (parameters, number) = (MODEL / 4, number % ranks);
            4 * (parameters / ranks + usize::from(number < parameters % ranks))
        };
        for (rank, found) in traffic.iter().enumerate() {
            let sent = 2 * MODEL - chunk(rank + 1) - chunk(rank + 2);
            let received = 2 * MODEL - chunk(rank) - chunk(rank + 1);
            assert_eq!(*found, (sent, received), "rank {rank} of {ranks}");
            if (MODEL / 4).is_multiple_of(ranks) {
                assert_eq!(sent * ranks, 2 * MODEL * (ranks - 1));
            }
        }
        // The total of all ranks is what the formula says, for any length.
        let all: usize = traffic.iter().map(|rank| rank.0).sum();
        assert_eq!(all, 2 * MODEL * (ranks - 1), "{ranks} ranks");
    }
    Ok(())
}

/// S1.39, S1.44, including lengths that are not a multiple of the number of ranks or are smaller than it. The program
/// compares every sum with those of all_reduce and of a parameter server, and the bits of all ranks with each other.
#[test]
fn the_ring_gives_every_rank_the_same_bits_and_the_sums_of_other_ways() -> Result<()> {
    for ranks in [2, 3, 5] {
        let lengths = [1, 2, 3, 4, 5, 7, 1000, 101_770];
        let lengths = lengths.map(|length| format!("--elements={length}"));
        let flags = ["ring", "check"].into_iter().chain(lengths.iter().map(String::as_str));
        let ended = Job::new()?.run(launch(ranks, &async_update(flags)?)?)?.expect_success()?;
        let agreeing = ended.stdout.lines().filter(|line| line.contains("the same bits on all"));
        assert_eq!(agreeing.count(), lengths.len(), "{ended}");
    }
    Ok(())
}

fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|word| word.replace(',', "").parse().ok()).collect()
}

/// What `cost` prints, and its picture.
pub fn cost(ranks: usize) -> Result<Arc<(String, String)>> {
    static RUNS: Shared<(String, String)> = Shared::new();
    let program = launch(ranks, &async_update(["cost", "--plot", "plots"])?)?;
    RUNS.get(ranks, || printed_and_written(program, "plots/cost.svg"))
}

#[test]
fn what_a_message_and_an_update_cost_is_measured_and_predicted() -> Result<()> {
    for ranks in [2, 4] {
        let (text, picture) = &*cost(ranks)?;
        let tables: Vec<_> = text.split("\n\n").collect();
        let [messages, traffic, predictions, measured] = tables[..] else {
            bail!("expected four tables: {text}")
        };
        let row = |table: &str, name: &str| {
            let line = table.lines().find(|line| line.trim_start().starts_with(name));
            line.map(numbers).with_context(|| format!("{name} in {table}"))
        };
        // From 4 bytes to 16 MiB.
        for size in ["4 ", "16,777,216 "] {
            let times = row(messages, size)?;
            ensure!(times.len() == 3 && times.iter().all(|&time| time > 0.0), "{messages}");
        }
        ensure!(messages.contains("α = ") && messages.contains(" µs"), "{messages}");
        assert_eq!(row(traffic, "40 ")?, [40.0, 78.0, 1.95]);
        let times = row(predictions, "10,000 ")?;
        ensure!(times.len() == 6 && times.iter().all(|&time| time > 0.0), "{predictions}");
        for (method, columns) in [("sync-ps", 2), ("ring", 2), ("sync-allreduce", 1)] {
            let times = row(measured, method)?;
            ensure!(times.len() == columns && times.iter().all(|&time| time > 0.0), "{measured}");
        }
        ensure!(picture.contains("halving-doubling"), "cost.svg shows no prediction");
    }
    Ok(())
}

cases! {
    fn a_world_of_one_has_nobody_to_exchange_with() =
        ["cost", "ring check", "ring", "sync-ps", "diloco"].into_iter().try_for_each(|flags| {
            let texts = ["a world of 1 has nobody to exchange with", "at least 2 ranks"];
            expect_refusal(async_update(flags.split(' '))?, 1, &texts)
        });
    fn sizes_that_no_model_has_are_refused() =
        expect_refusals(|size| async_update(["cost", "--bytes", size]), &[
            ("6B", 1, ["--bytes is 6, but must be a multiple of 4"]),
            ("many", 2, ["expected a number and B, KiB, MiB or GiB"]),
        ]);
}

#[test]
fn a_model_for_which_there_is_no_memory_is_refused() -> Result<()> {
    let program = launch(2, &async_update(["cost", "--bytes=100000GiB"])?)?;
    let ended = Job::new()?.run(program)?.expect_code(1)?;
    ended.expect_line(&["a smaller --bytes may fit", "you tried to allocate"])?;
    ensure!(!ended.stderr.contains("frame #"), "{ended}");
    let program = async_update(["ring", "check", "--elements=4294967296"])?;
    expect_refusal(program, 2, &["--elements", "4294967296 is not in 1..=4294967295"])
}

#[test]
fn a_ring_without_names_for_its_chunks_is_refused() -> Result<()> {
    let show = |ranks: &str| Job::new()?.run(async_update(["ring", "show", "--n", ranks])?);
    for ranks in ["0", "1", "27"] {
        show(ranks)?.expect_code(2)?.expect_messages(&[&format!("{ranks} is not in 2..=26")])?;
    }
    let others = [("-5", 2), ("five", 2), ("2", 0), ("26", 0)];
    others.into_iter().try_for_each(|(ranks, code)| show(ranks)?.expect_code(code).map(drop))
}
