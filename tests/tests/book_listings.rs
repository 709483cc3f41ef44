//! What the book says a program prints is what it prints.
//!
//! `UPDATE_BOOK=1 cargo test --release -p tests --test book_listings` writes the listings anew.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tests::Job;
use tests::programs::{ddp_mnist, dp_basic, free_port, launch, launch_with, source, workspace};

/// How far a loss or an accuracy may be from the book's: processors differ in the last bits, and
/// ten epochs make more of it.
const TRAINED: f64 = 0.02;

/// For what is computed without rounding, or printed with few enough digits.
const EXACT: f64 = 0.0;

/// Compares a text with the listing of this name, or replaces the listing if it differs.
fn expect_listing(name: &str, text: &str, tolerance: f64) -> Result<()> {
    let path = workspace().join("book/src/output").join(name);
    let listing = fs::read_to_string(&path).unwrap_or_default();
    if same(&listing, text, tolerance) {
        return Ok(());
    }
    if env::var_os("UPDATE_BOOK").is_some() {
        return fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    ensure!(
        false,
        "{} is out of date; UPDATE_BOOK=1 renews it\n=== the book\n{listing}\n=== this run\n{text}",
        path.display()
    );
    Ok(())
}

/// Whether two texts agree word for word, their numbers within the tolerance. Times and process
/// ids may be any.
fn same(listing: &str, text: &str, tolerance: f64) -> bool {
    let same_line = |(listing, text): (&str, &str)| {
        let by_chance = listing.contains(" ms") || listing.contains("(pid ");
        let tolerance = if by_chance { f64::INFINITY } else { tolerance };
        let words = |line| str::split(line, [' ', '\t', '=', ',', ':', '}', ')']);
        words(listing).count() == words(text).count()
            && words(listing).zip(words(text)).all(|(a, b)| same_word(a, b, tolerance))
    };
    listing.lines().count() == text.lines().count()
        && listing.lines().zip(text.lines()).all(same_line)
}

fn same_word(listing: &str, text: &str, tolerance: f64) -> bool {
    let numbers = listing.parse::<f64>().ok().zip(text.parse::<f64>().ok());
    listing == text || numbers.is_some_and(|(a, b)| (a - b).abs() <= tolerance)
}

/// The lines of each rank together, rank 0 first; printed, they are mixed anew in every run.
fn by_rank(printed: &str) -> String {
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_by_key(|line| line.split_once("]: ").map(|(rank, _)| rank));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// An example of the library.
fn example(name: &str) -> Result<Command> {
    let test = env::current_exe()?;
    let profile = test.ancestors().nth(2).context("a test lies in target/PROFILE/deps")?;
    let program: PathBuf = profile.join("examples").join(name);
    ensure!(
        program.exists(),
        "{} is not built; run `cargo build --release -p tch-parallel --examples`",
        program.display()
    );
    let mut command = Command::new(program);
    command.env("OMP_NUM_THREADS", "1");
    Ok(command)
}

/// Runs a program as ranks whose lines carry their number, and gives its lines by rank.
fn run_by_rank(ranks: usize, program: &Command) -> Result<String> {
    let flags = ["-n", &ranks.to_string(), "--tee", "1", "--log-dir", "logs"];
    Ok(by_rank(&Job::new()?.run(launch_with(&flags, program)?)?.expect_success()?.stdout))
}

// === The examples ===

/// A name, how many ranks it takes (0: no launcher), and whether more of them than rank 0 print.
const EXAMPLES: [(&str, usize, bool); 11] = [
    ("averaged_gradient", 2, true),
    ("batches_per_rank", 0, false),
    ("forgotten_epoch", 0, false),
    ("gradient_buckets", 2, false),
    ("mean_of_means", 5, false),
    ("mnist_ddp", 2, false),
    ("mnist_single", 0, false),
    ("no_gradient_exchange", 2, false),
    ("same_weights_other_dropout", 2, true),
    ("shuffled_twice", 2, false),
    ("wrong_world_size", 2, false),
];

#[test]
fn the_examples_print_what_the_book_shows() -> Result<()> {
    for (name, ranks, all_print) in EXAMPLES {
        let run = format!("cargo run -rq -p tch-parallel --example {name}");
        let (shown, printed) = if ranks == 0 {
            (run, Job::new()?.run(example(name)?)?.expect_success()?.stdout)
        } else if all_print {
            let shown = format!("cargo launch -n {ranks} --tee 1 -- {run}");
            (shown, run_by_rank(ranks, &example(name)?)?)
        } else {
            let command = launch(ranks, &example(name)?)?;
            let shown = format!("cargo launch -n {ranks} -- {run}");
            (shown, Job::new()?.run(command)?.expect_success()?.stdout)
        };
        let code = source(format!("core/examples/{name}.rs"))?;
        assert!(code.contains(&format!("//! {shown}\n")), "{name}.rs does not say `{shown}`");
        let tolerance = if name.starts_with("mnist") { TRAINED } else { EXACT };
        expect_listing(&format!("{name}.txt"), &format!("$ {shown}\n{printed}"), tolerance)?;
    }
    Ok(())
}

#[test]
fn a_collective_that_one_rank_does_not_call_ends_with_the_timeout() -> Result<()> {
    let command = launch(2, &example("lonely_collective")?)?;
    let ended = Job::new()?.run(command)?.expect_code(1)?;
    let text = format!("{}{}", ended.stdout, ended.stderr);
    expect_listing("lonely_collective.txt", &text, EXACT)
}

#[test]
fn ranks_in_different_collectives_abort() -> Result<()> {
    let command = launch(2, &example("mismatched_collectives")?)?;
    let ended = Job::new()?.run(command)?.expect_messages(&["rank 0", "killed by SIGABRT"])?;
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    let what = ended.stderr.lines().find(|line| line.starts_with("  what():"));
    lines.push(what.with_context(|| format!("gloo did not complain: {ended}"))?);
    expect_listing("mismatched_collectives.txt", &(lines.join("\n") + "\n"), EXACT)
}

#[test]
fn in_detail_ranks_in_different_collectives_are_told_so() -> Result<()> {
    let mut command = launch(2, &example("mismatched_collectives")?)?;
    command.env("TORCH_DISTRIBUTED_DEBUG", "DETAIL");
    let ended = Job::new()?.run(command)?.expect_code(1)?;
    // Between its first and its last words, PyTorch describes both tensors at length.
    let shortened = |line: &str| {
        let (first, rest) = line.split_once(" Rank ")?;
        let (_, last) = rest.split_once("Collectives differ")?;
        line.starts_with("[rank ").then(|| format!("{first} … Collectives differ{last}"))
    };
    // The launcher repeats those of the rank that it names.
    let mut errors: Vec<_> = ended.stderr.lines().filter_map(shortened).collect();
    errors.sort_unstable();
    errors.dedup();
    expect_listing("mismatched_collectives_detail.txt", &(errors.join("\n") + "\n"), EXACT)
}

#[test]
fn by_its_rank_a_process_of_the_second_node_takes_a_device_that_is_not_there() -> Result<()> {
    let job = Job::new()?;
    let port = free_port()?.to_string();
    let node = |number: &str| {
        let nodes = ["--nnodes", "2", "--node-rank", number, "--master-addr", "127.0.0.1"];
        let flags = [&nodes[..], &["--master-port", &port, "-n", "2"]].concat();
        job.start(launch_with(&flags, &example("global_rank_as_device")?)?)
    };
    let mut printed = String::new();
    for mut node in [node("0")?, node("1")?] {
        printed.push_str(&node.wait()?.expect_success()?.stdout);
    }
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    expect_listing("global_rank_as_device.txt", &(lines.join("\n") + "\n"), EXACT)
}

#[test]
fn from_one_process_to_several_it_is_this_diff() -> Result<()> {
    let mut diff = Command::new("diff");
    diff.args(["-U", "1", "--label", "mnist_single.rs", "--label", "mnist_ddp.rs"])
        .args(["mnist_single.rs", "mnist_ddp.rs"])
        .current_dir(workspace().join("core/examples"));
    // diff ends with 1 where it finds differences.
    let ended = Job::new()?.run(diff)?.expect_code(1)?;
    expect_listing("mnist_single_to_ddp.diff", &ended.stdout, EXACT)
}

// === The programs ===

#[test]
fn launch_tells_each_rank_who_it_is() -> Result<()> {
    let script = "echo RANK=$RANK LOCAL_RANK=$LOCAL_RANK WORLD_SIZE=$WORLD_SIZE \
                  MASTER_ADDR=$MASTER_ADDR OMP_NUM_THREADS=$OMP_NUM_THREADS";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    let shown = format!("$ cargo launch -n 2 --tee 1 -- sh -c '{script}'\n");
    expect_listing("environment.txt", &(shown + &run_by_rank(2, &shell)?), EXACT)
}

#[test]
fn the_toy_prints_what_the_book_shows() -> Result<()> {
    for (name, flags) in [
        ("sampler_in_order.txt", "sampler --no-sleep"),
        ("sampler_shuffled.txt", "sampler --no-sleep --shuffle --seed 1111"),
    ] {
        let printed = run_by_rank(2, &dp_basic(flags.split(' '))?)?;
        let shown = format!("$ cargo launch -n 2 --tee 1 dp-basic -- {flags}\n");
        expect_listing(name, &(shown + &printed), EXACT)?;
    }
    let printed = Job::new()?.run(dp_basic(["sampler", "--no-sleep"])?)?.expect_success()?.stdout;
    let shown = "$ cargo run -rq -p dp-basic -- sampler --no-sleep\n";
    expect_listing("sampler_alone.txt", &(shown.to_owned() + &printed), EXACT)
}

#[test]
fn ddp_mnist_prints_what_the_book_shows() -> Result<()> {
    let flags = "--lr 0.05 --momentum 0.9 --metrics metrics";
    let job = Job::new()?;
    let ended = job.run(launch(2, &ddp_mnist(flags.split(' '))?)?)?.expect_success()?;
    let shown = format!("$ cargo launch -n 2 ddp-mnist -- {flags}\n");
    expect_listing("ddp_mnist.txt", &(shown + &ended.stdout), TRAINED)?;
    assert_eq!(job.files()?, ["metrics", "model.safetensors"]);

    let results = |rank: usize| -> Result<Vec<String>> {
        let file = fs::read_to_string(job.directory().join(format!("metrics/rank{rank}.jsonl")))?;
        let epochs = file.lines().filter(|line| line.contains(r#""event":"epoch""#));
        Ok(epochs
            .filter_map(|line| line.split_once(r#""epoch":"#))
            .map(|(_, e)| e.into())
            .collect())
    };
    assert_eq!(results(0)?, results(1)?, "an epoch came to something else on rank 1");
    assert_eq!(results(0)?.len(), 10);

    let mut metrics = "$ head -qn 3 metrics/*\n".to_owned();
    for rank in 0..2 {
        let file = fs::read_to_string(job.directory().join(format!("metrics/rank{rank}.jsonl")))?;
        file.lines().take(3).for_each(|line| metrics.push_str(&format!("{line}\n")));
    }
    expect_listing("ddp_mnist_metrics.txt", &metrics, TRAINED)
}

#[test]
fn more_ranks_make_fewer_and_larger_steps() -> Result<()> {
    let mut table = "ranks  batch a rank  lr    steps  train_loss  val_loss  accuracy\n".to_owned();
    for (ranks, batch_size, lr, steps) in [
        (1, 128, 0.01, 63),
        (2, 128, 0.01, 32),
        (4, 128, 0.01, 16),
        (1, 256, 0.01, 32),
        (1, 512, 0.01, 16),
        (2, 64, 0.01, 63),
        (2, 128, 0.02, 32),
        (4, 128, 0.04, 16),
    ] {
        let (batch, rate) = (batch_size.to_string(), lr.to_string());
        let flags = ["--batch-size", &batch, "--lr", &rate, "--no-save"];
        let ended = Job::new()?.run(launch(ranks, &ddp_mnist(flags)?)?)?.expect_success()?;
        let last = ended.stdout.lines().last().context("it prints a line an epoch")?;
        let values: Vec<_> = last.split(", ").filter_map(|part| part.split('=').nth(1)).collect();
        let [_, train_loss, val_loss, accuracy] = values[..] else {
            anyhow::bail!("no epoch: {last}")
        };
        table.push_str(&format!(
            "{ranks:5}  {batch_size:12}  {lr:.2}  {steps:5}  {train_loss:>10}  {val_loss:>8}  {accuracy:>8}\n"
        ));
    }
    expect_listing("effective_batch.txt", &table, TRAINED)
}

// === The index ===

/// All Rust code of the workspace.
fn code(directory: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            text.push_str(&code(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(text)
}

#[test]
fn the_index_names_tests_and_examples_that_exist() -> Result<()> {
    let crates = ["core", "dp-basic", "ddp-mnist", "launch", "tests"];
    let code: String =
        crates.iter().map(|name| code(&workspace().join(name))).collect::<Result<_>>()?;
    let index = source("book/src/scenarios.md")?;
    let rows = index.lines().filter(|line| line.starts_with("| S"));
    for shown in rows.filter_map(|row| row.split('|').nth(3)) {
        for name in shown.split('`').skip(1).step_by(2).filter(|name| name.contains('_')) {
            let example = workspace().join(format!("core/examples/{name}.rs"));
            let file = workspace().join(name);
            let exists = code.contains(&format!("fn {name}(")) || example.exists();
            assert!(exists || file.exists(), "the index names {name}, which is not there");
        }
    }
    Ok(())
}

// === The comparison itself ===

#[test]
fn numbers_may_differ_within_the_tolerance_and_words_not_at_all() {
    assert!(same("loss=0.500, epoch 1", "loss=0.505, epoch 1", 0.01));
    assert!(!same("loss=0.500, epoch 1", "loss=0.520, epoch 1", 0.01));
    assert!(!same("loss=0.500", "cost=0.500", 0.01));
    assert!(!same("1\n2", "1", 0.01));
    assert!(same("backward 3.1 ms", "backward 10.9 ms", EXACT));
    assert!(same("rank 0 (pid 521) ended", "rank 0 (pid 7) ended", EXACT));
}
