//! What the toy of the sampler prints that the book does not show, and a draft's losses.

use crate::prelude::*;

/// The output of each rank, separately, since the ranks print in no fixed order.
fn printed_by_rank(ranks: usize, program: &Command) -> Result<BTreeMap<usize, String>> {
    let flags = ["-n", &ranks.to_string(), "--tee", "1", "--log-dir", "logs"];
    let mut printed: BTreeMap<usize, String> = BTreeMap::new();
    for line in tests::printed(launch_with(&flags, program)?)?.lines() {
        let rank_and_text = line.strip_prefix("[rank").and_then(|rest| rest.split_once("]: "));
        let (rank, text) = rank_and_text.with_context(|| format!("no rank printed: {line}"))?;
        *printed.entry(rank.parse()?).or_default() += &format!("{text}\n");
    }
    Ok(printed)
}

/// The batches that a toy has printed, after the tab in its `sleep …; device:…` lines.
fn batches(printed: &str) -> Vec<Vec<usize>> {
    let lines = printed.lines().filter(|line| line.starts_with("sleep "));
    lines.filter_map(|line| line.split_once('\t')).map(|(_, batch)| numbers(batch)).collect()
}

fn numbers(text: &str) -> Vec<usize> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

fn sampler(arguments: &[&'static str]) -> Result<Command> {
    dp_basic([&["sampler", "--no-sleep"], arguments].concat())
}

// === The toy of "Distributed Data Parallel and Its Pytorch Example", by bobondemon ===

#[test]
fn the_tutorials_first_picture_comes_out_number_for_number() -> Result<()> {
    let printed = printed_by_rank(2, &sampler(&["--shuffle", "--seed", "111"])?)?;
    assert_eq!(batches(&printed[&0]), [[20, 6, 2, 17], [14, 10, 11, 18], [15, 8, 22, 9]]);
    assert_eq!(batches(&printed[&1]), [[0, 13, 23, 12], [5, 3, 1, 4], [16, 19, 7, 21]]);
    Ok(())
}

#[test]
fn one_process_goes_through_everything_in_order_or_shuffled() -> Result<()> {
    insta::assert_snapshot!("toy_alone_in_order", printed(sampler(&[])?)?);
    let shuffled = printed(sampler(&["--shuffle"])?)?;
    let mut drawn = batches(&shuffled).concat();
    assert_ne!(drawn, (0..24).collect::<Vec<_>>(), "{shuffled}");
    drawn.sort_unstable();
    assert_eq!(drawn, (0..24).collect::<Vec<_>>(), "{shuffled}");
    assert!(shuffled.contains("avg=11.5"), "{shuffled}");
    Ok(())
}

#[test]
fn five_ranks_count_index_0_twice_unless_the_rest_is_dropped() -> Result<()> {
    for (flags, of_the_last, mean) in [
        (&[][..], &[4, 9, 14, 19, 0][..], "avg=11.04"),
        (&["--drop-last"][..], &[4, 9, 14, 19][..], "avg=9.5"),
    ] {
        let printed = printed_by_rank(5, &sampler(flags)?)?;
        assert_eq!(batches(&printed[&4]).concat(), of_the_last);
        assert!(printed.values().all(|text| text.contains(mean)), "{printed:?}");
    }
    Ok(())
}

// === ddp-mnist ===

/// Those of the first draft of Boiko's program, in every digit.
#[test]
fn the_drafts_losses_equal_python() -> Result<()> {
    let rust = printed(example("printed_losses", [])?)?;
    let python = printed(python("printed_losses", [])?)?;
    ensure!(python.lines().count() == 3, "{python}");
    // Below the heading, each line goes on with what Python does not print.
    let mut lines = python.lines().zip(rust.lines().skip(1));
    ensure!(lines.all(|(python, rust)| rust.starts_with(python)), "{rust} against {python}");
    Ok(())
}
