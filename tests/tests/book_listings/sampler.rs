//! Chapter "Which rank sees which samples: the distributed sampler".

use super::*;

#[test]
fn the_toy_prints_what_the_book_shows() -> Result<()> {
    let names = ["sampler_in_order.txt", "sampler_shuffled.txt", "sampler_alone.txt"];
    names.into_iter().try_for_each(|name| expect_replay(name, EXACT))
}

#[test]
fn a_collective_that_one_rank_does_not_call_ends_with_the_timeout() -> Result<()> {
    let ended = Job::new()?.run(launch(2, &example("lonely_collective", [])?)?)?.expect_code(1)?;
    expect_listing("lonely_collective.txt", &(ended.stdout + &ended.stderr), EXACT)
}

/// What each of two ranks in different collectives says. They are started without a launcher, which
/// would end one rank soon after the other.
fn said_by_mismatched_ranks(variables: &[(&str, &str)]) -> Result<Vec<String>> {
    let (job, port) = (Job::new()?, free_port()?);
    let start = |rank| {
        let mut command = as_rank(example("mismatched_collectives", [])?, rank, 2, port);
        job.start(command.envs(variables.iter().copied()))
    };
    let mut said = Vec::new();
    for mut rank in [start(0)?, start(1)?] {
        let ended = rank.wait()?.expect_code(1)?;
        said.extend(ended.stderr.lines().filter(|l| l.starts_with("[rank ")).map(str::to_owned));
    }
    Ok(said)
}

#[test]
fn ranks_of_one_host_in_different_collectives_are_told_so() -> Result<()> {
    let said = said_by_mismatched_ranks(&[])?;
    expect_listing("mismatched_collectives.txt", &(said.join("\n") + "\n" + CUT), EXACT)
}

#[test]
fn over_sockets_ranks_in_different_collectives_abort() -> Result<()> {
    let mut command = launch(2, &example("mismatched_collectives", [])?)?;
    let ended = Job::new()?.run(command.env("TCH_PARALLEL_SHARED_MEMORY", "0"))?;
    ended.expect_messages(&["rank 0", "killed by SIGABRT"])?;
    let what = ended.stderr.lines().find(|line| line.starts_with("  what():"));
    let what = what.with_context(|| format!("gloo did not complain: {ended}"))?;
    let listing = format!("{}{CUT}{what}\n{CUT}", sorted(&ended.stdout));
    expect_listing("mismatched_collectives_sockets.txt", &listing, EXACT)
}

#[test]
fn with_debug_detail_ranks_in_different_collectives_are_told_so() -> Result<()> {
    // In the middle of the message, PyTorch describes both tensors at length.
    let shortened = |line: &String| {
        let (first, rest) = line.split_once(" Rank ")?;
        let (_, last) = rest.split_once("Collectives differ")?;
        Some(format!("{first} … Collectives differ{last}"))
    };
    let said = said_by_mismatched_ranks(&[("TORCH_DISTRIBUTED_DEBUG", "DETAIL")])?;
    let said: Vec<_> = said.iter().filter_map(shortened).collect();
    expect_listing("mismatched_collectives_detail.txt", &(said.join("\n") + "\n" + CUT), EXACT)
}

#[test]
fn global_ranks_as_devices_name_missing_devices_on_the_second_node() -> Result<()> {
    let printed = printed_by_two_nodes(&example("global_rank_as_device", [])?)?.concat();
    expect_listing("global_rank_as_device.txt", &sorted(&printed), EXACT)
}
