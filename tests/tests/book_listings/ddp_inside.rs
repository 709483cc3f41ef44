//! Chapters "Inside DistributedDataParallel", "A parameter without a gradient", "Communication hooks" and "Uneven inputs: join".
//! What a program that starts its ranks itself prints is in "Set-up and launching".

use super::*;

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

cases! {
    fn a_program_can_start_its_ranks_itself() = expect_replay("spawn_ranks.txt", EXACT);
    fn the_overlap_is_measured_and_drawn() = expect_drawn("overlap");
    fn hooks_save_and_lose_what_the_book_shows() =
        expect_replay("gradient_accumulation.txt", LAST_DIGIT)
            .and_then(|()| expect_replay("comm_hooks.txt", TRAINED));
}

#[test]
fn a_parameter_without_a_gradient_ends_the_job_unless_it_is_expected() -> Result<()> {
    expect_replay("find_unused_parameters.txt", EXACT)?;

    let (shown, program) = first_command("unused_parameters")?;
    let ended = Job::new()?.run(program)?.expect_code(1)?;
    expect_listing("unused_parameters.txt", &(shown + &errors(&ended.stderr)), EXACT)?;

    let (shown, program) = first_command("static_graph")?;
    let ended = Job::new()?.run(program)?.expect_code(1)?;
    // Rank 1's message depends on how fast it notices that rank 0 has ended.
    let errors = errors(&ended.stderr);
    let of_rank_0 = errors.lines().next().context("rank 0 fails")?;
    let listing = format!("{shown}{}{of_rank_0}\n{CUT}", ended.stdout);
    expect_listing("static_graph.txt", &listing, EXACT)
}

#[test]
fn ranks_with_different_numbers_of_batches_need_join() -> Result<()> {
    for (option, code) in [("without", 1), ("with", 0), ("divide_by_those_left", 0), ("throw", 1)] {
        let name = format!("join_{option}");
        let (shown, program) = first_command(&name)?;
        let ended = Job::new()?.run(program)?.expect_code(code)?;
        let listing = shown + &by_rank(&ended.stdout) + &errors(&ended.stderr);
        expect_listing(&format!("{name}.txt"), &listing, EXACT)?;
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
    // The launcher's own lines follow.
    lines.extend((!lines.is_empty()).then(|| CUT.to_owned()));
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
