//! Chapter "PyramidNet, compared".

use super::*;

cases! {
    fn the_articles_network_is_smaller_than_the_one_it_is_taken_for() =
        expect_replay("pyramidnet_parameters.txt", EXACT);
    fn a_training_prints_the_repositorys_lines() =
        expect(&[("train_cifar.txt", &replayed("train_cifar.txt")?, &same_training)]);
}

/// S4.10
#[test]
fn from_one_method_to_the_next_it_is_this_diff_of_a_handful_of_lines() -> Result<()> {
    for (from, to, name, handful) in [
        ("single", "data_parallel", "data_parallel", 6),
        ("data_parallel", "distributed", "ddp", 6),
    ] {
        let [from_file, to_file] = [from, to].map(|name| format!("{name}.rs"));
        let diff = diff([&from_file, &to_file], [&training(from)?, &training(to)?])?;
        let new = diff.lines().skip(2).filter(|line| line.starts_with('+')).count();
        ensure!((1..=handful).contains(&new), "{new} lines instead of {handful}:\n{diff}");
        expect_listing(&format!("compare_{name}.diff"), &diff, EXACT)?;
    }
    Ok(())
}

/// The part of a method that the book shows, without imports.
fn training(name: &str) -> Result<String> {
    let code = source(format!("ddp-imagenet/src/exhibits/train_cifar/{name}.rs"))?;
    Ok(between(&code, "// ANCHOR: train\n", "    // ANCHOR_END")?.to_owned())
}

#[test]
fn the_comparison_is_as_the_book_shows() -> Result<()> {
    let (shown, mut program) = first_command("compare")?;
    program.arg(UNHURRIED);
    let (text, svg) = printed_and_written(cut_short(program, &["--steps=3"]), "charts/memory.svg")?;
    let (tables, _) = after_two(&text).context("words follow the tables")?;
    expect(&[
        ("compare_memory.svg", &svg, &same_drawn_amounts),
        ("compare.txt", &format!("{shown}{tables}\n\n{CUT}"), &same_measured),
    ])
}
