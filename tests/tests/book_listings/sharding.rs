//! Chapter "Sharding the model". What its example prints is in `examples`, and
//! `tests/python/book_sharding.py` compares the two pictures with that.

use crate::prelude::*;

/// The numbers in the root and in each block of `core/examples/fully_shard.rs`.
const ROOT: f64 = 256.0 * 257.0;
const BLOCK: f64 = 1024.0 * 257.0 + 256.0 * 1025.0;
const BLOCKS: usize = 8;

const MIB: f64 = 1_048_576.0;

/// The bytes of a rank with AdamW in 32 bits, by the chapter's formulas: with DDP, with ZeRO-1, and
/// with FullyShard between two steps and at the peak. The largest unit has `unit` numbers.
fn formulas(parameters: f64, ranks: f64, unit: f64) -> [f64; 4] {
    let shards = 16.0 * parameters / ranks;
    let zero = (12.0 + 8.0 / ranks) * parameters;
    [20.0 * parameters, zero, shards + 8.0 * unit, shards + 12.0 * unit]
}

#[test]
fn the_formulas_give_what_the_example_has_measured() -> Result<()> {
    let output = source("book/src/output/fully_shard.txt")?;
    let amount = |text: &str| text.rsplit(' ').next()?.parse::<f64>().ok();
    let amounts: Vec<_> = output.split(" MiB").filter_map(amount).collect();
    let [ddp, _, between_steps, most] = amounts[..] else { bail!("{amounts:?}") };
    let computed = formulas(ROOT + BLOCKS as f64 * BLOCK, 2.0, BLOCK);
    let pairs = [(ddp, computed[0]), (between_steps, computed[2]), (most, computed[3])];
    for (measured, computed) in pairs {
        // The formulas leave out that the root is whole too.
        let computed = computed / MIB;
        ensure!((computed / measured - 1.0).abs() < 0.01, "{computed} instead of {measured} MiB");
    }
    Ok(())
}

#[test]
fn the_calculators_table_and_the_gpt_are_computed_by_the_formulas() -> Result<()> {
    let chapter = source("book/src/sharding.md")?.replace("\n  ", " ");
    let [ddp, zero, _, most] = formulas(1e9, 8.0, 0.05e9).map(|bytes| bytes / 1e9);
    for (method, gigabytes) in [("DDP", ddp), ("DDP with ZeRO-1", zero), ("FullyShard", most)] {
        let row = format!("| {method} | {gigabytes} GB |");
        ensure!(chapter.contains(&row), "no row {row}");
    }
    // Ten blocks, and hardly anything in the root.
    let [ddp, _, _, most] = formulas(189.0 / 4.0, 2.0, 18.9 / 4.0);
    for sentence in [format!("5 · 189 = {ddp} MiB"), format!("378 + 3 · 18.9 = {most:.0} MiB")] {
        ensure!(chapter.contains(&sentence), "no `{sentence}`");
    }
    Ok(())
}

/// The collectives of a step, in the chapter's words.
fn collectives(blocks: usize) -> [String; 2] {
    let gather = |block: usize| format!("AG {block}");
    let mut forward = vec!["AG root".to_owned()];
    forward.extend((0..blocks).map(gather));
    let mut backward = vec![gather(blocks - 1)];
    for block in (0..blocks).rev() {
        backward.extend(block.checked_sub(1).map(gather));
        backward.push(format!("RS {block}"));
    }
    backward.push("RS root".into());
    [forward, backward].map(|pass| pass.join(", "))
}

#[test]
fn a_step_has_the_collectives_of_the_profilers_trace() -> Result<()> {
    let output = source("book/src/output/fully_shard.txt")?;
    let traced = output.lines().find_map(|line| line.strip_prefix("a step: "));
    let traced = traced.context("no step")?;
    ensure!(traced == collectives(BLOCKS).join(", "), "{traced}");
    let [forward, backward] = collectives(3);
    let shown = format!("forward:  {forward}\nbackward: {backward}\n");
    ensure!(source("book/src/sharding.md")?.contains(&shown), "the chapter lacks\n{shown}");
    Ok(())
}
