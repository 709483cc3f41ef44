//! Chapter "Inside DistributedDataParallel".

use super::*;

const RUN: &str = "cargo run -rq -p tch-parallel --example";

#[test]
fn without_the_sampler_two_ranks_do_the_work_of_one_twice() -> Result<()> {
    // Processors round the last of the weight's seven decimals differently.
    let replayed = replayed("without_the_sampler.txt")?;
    expect_listing("without_the_sampler.txt", &replayed, 1e-6)?;

    let weight = |line: &str| line.split_once("weight ").map(|(_, weight)| weight.to_owned());
    let unshared = replayed.lines().filter(|line| line.contains("SequentialSampler"));
    let weights: Vec<_> = unshared.filter_map(weight).collect();
    // One process, and each of two ranks.
    assert!(weights.len() == 3 && weights.iter().all(|it| *it == weights[0]), "{replayed}");
    Ok(())
}

#[test]
fn a_program_can_start_its_ranks_itself() -> Result<()> {
    expect_replay("spawn_ranks.txt", EXACT)
}

#[test]
fn the_overlap_is_measured_and_drawn() -> Result<()> {
    let program = launch(2, &example("overlap", ["overlap.svg"])?)?;
    let (text, svg) = printed_and_written(program, "overlap.svg")?;
    let shown = format!("$ cargo launch -n 2 -- {RUN} overlap overlap.svg\n");
    expect_times("overlap.txt", &(shown + &text), "overlap.svg", &svg)
}

#[test]
fn hooks_save_and_lose_what_the_book_shows() -> Result<()> {
    for (name, tolerance) in [("gradient_accumulation", LAST_DIGIT), ("comm_hooks", TRAINED)] {
        expect_replay(&format!("{name}.txt"), tolerance)?;
    }
    Ok(())
}

#[test]
fn a_parameter_without_a_gradient_ends_the_job_unless_it_is_expected() -> Result<()> {
    let shown = |option: &str| format!("$ cargo launch -n 2 -- {RUN} unused_parameters{option}\n");
    let run = |options: &[&str]| -> Result<_> {
        Job::new()?.run(launch(2, &example("unused_parameters", options.iter().copied())?)?)
    };

    let ended = run(&[])?.expect_code(1)?;
    expect_listing("unused_parameters.txt", &(shown("") + &errors(&ended.stderr)), EXACT)?;

    let ended = run(&["find_unused_parameters"])?.expect_success()?;
    let listing = shown(" find_unused_parameters") + &ended.stdout;
    expect_listing("find_unused_parameters.txt", &listing, EXACT)?;

    let ended = run(&["static_graph"])?.expect_code(1)?;
    // Rank 1's message depends on how fast it notices that rank 0 has ended.
    let errors = errors(&ended.stderr);
    let of_rank_0 = errors.lines().next().context("rank 0 fails")?;
    let listing = format!("{}{}{of_rank_0}\n", shown(" static_graph"), ended.stdout);
    expect_listing("static_graph.txt", &listing, EXACT)
}

#[test]
fn ranks_with_different_numbers_of_batches_need_join() -> Result<()> {
    for (option, succeeds) in
        [("without", false), ("with", true), ("divide_by_those_left", true), ("throw", false)]
    {
        let flags = ["-n", "2", "--tee", "1", "--log-dir", "logs"];
        let ended = Job::new()?.run(launch_with(&flags, &example("join", [option])?)?)?;
        let ended = if succeeds { ended.expect_success()? } else { ended.expect_code(1)? };
        let shown = format!("$ cargo launch -n 2 --tee 1 -- {RUN} join {option}\n");
        let listing = shown + &by_rank(&ended.stdout) + &errors(&ended.stderr);
        expect_listing(&format!("join_{option}.txt"), &listing, EXACT)?;
    }
    Ok(())
}

/// The ranks' own messages, in the order of the ranks, without gloo's words about a connection.
/// Those name a line of gloo's code and a port, and depend on how the connection ended.
fn errors(stderr: &str) -> String {
    let mut lines: Vec<_> =
        stderr.lines().filter(|line| line.starts_with("[rank ")).map(shortened).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.concat()
}

fn shortened(line: &str) -> String {
    let around_gloos = || {
        let (before, gloos) = line.split_once("[/")?;
        let (_, blame) = gloos.split_once(" (")?;
        Some(format!("{before}… ({blame}\n"))
    };
    around_gloos().unwrap_or_else(|| format!("{line}\n"))
}
