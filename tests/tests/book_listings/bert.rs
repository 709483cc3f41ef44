//! Chapter "Where the memory goes: BERT on several devices".

use super::*;

/// The indentation of an arm of the methods' `match`.
const ARM: &str = "                ";

/// The corpus of all runs in this chapter, which is smaller than the program's default.
const CORPUS: &str = "tests/data/pairs.txt";

#[test]
fn a_training_on_one_device_prints_what_the_book_shows() -> Result<()> {
    let flags = "--batch-size 8 --steps 10";
    let shown = shown(&format!("--corpus {CORPUS} \\\n    {flags}"));
    expect_listing("bert_train.txt", &(shown + &bert(flags)?), LAST_DIGIT)
}

#[test]
fn several_devices_are_announced_in_codertimos_words() -> Result<()> {
    let using = |devices: &str| -> Result<Vec<String>> {
        let flags = format!("--batch-size 8 --hidden 32 --layers 1 --steps 1 --devices {devices}");
        let printed = bert(&flags)?;
        let lines = printed.lines().skip_while(|line| !line.starts_with("Building BERT"));
        Ok(lines.skip(1).take_while(|line| !line.starts_with("Total")).map(str::to_owned).collect())
    };
    assert_eq!(using("2xcpu")?, ["Using 2 GPUS for BERT: cpu:0,cpu:1"]);
    assert_eq!(using("cpu:0")?, [""; 0]);
    Ok(())
}

#[test]
fn the_methods_differ_in_these_lines() -> Result<()> {
    let parallel = source("dp-custom-criterion/src/parallel.rs")?;
    let arm = |method: &str| -> Result<String> {
        let arm = between(&parallel, &format!("// ANCHOR: {method}\n"), "// ANCHOR_END")?;
        let lines = arm.lines().map(|it| it.strip_prefix(ARM).unwrap_or(it).to_owned() + "\n");
        Ok(lines.collect::<String>().trim_end().to_owned() + "\n")
    };
    let steps = [("data_parallel", "custom_criterion"), ("data_parallel", "ddp"), ("ddp", "apex")];
    for (from, to) in steps {
        let diff = diff([from, to], [&arm(from)?, &arm(to)?])?;
        expect_listing(&format!("bert_{to}.diff"), &diff, EXACT)?;
    }
    Ok(())
}

#[test]
fn the_losses_of_the_methods_are_as_the_book_shows() -> Result<()> {
    let sizes = "--batch-size 16 --hidden 32 --layers 2 --dropout 0 --steps 1";
    let mut listing = format!(
        "$ BERT=\"cargo run -rq -p dp-custom-criterion -- --corpus {CORPUS}\n    {sizes} --devices \
         2xcpu\"\n"
    );
    for method in
        ["data-parallel", "output-device", "custom-criterion", "custom-criterion --weighted"]
    {
        listing += &format!("$ $BERT --method {method} | grep iter\n");
        let printed = bert(&format!("{sizes} --devices 2xcpu --method {method}"))?;
        let lines = printed.lines().filter(|line| line.contains("iter"));
        lines.for_each(|line| listing += &format!("{line}\n"));
    }
    expect_listing("bert_losses.txt", &listing, LAST_DIGIT)
}

#[test]
fn a_head_that_learns_nothing_ends_ddp_unless_it_is_expected_and_apex_never() -> Result<()> {
    let sizes = "--batch-size 16 --hidden 32 --layers 2 --steps 2 --no-next-sentence";
    let mut listing = format!(
        "$ BERT=\"cargo launch -n 2 dp-custom-criterion -- --corpus {CORPUS}\n    {sizes}\"\n"
    );
    let run = |method: &str| -> Result<_> {
        let flags = format!("--corpus {} {sizes} --method {method}", corpus());
        Job::new()?.run(launch(2, &dp_custom_criterion(flags.split(' '))?)?)
    };
    let line = |text: &str, begins: &str| -> Result<String> {
        let line = text.lines().find(|line| line.starts_with(begins));
        Ok(line.with_context(|| format!("no {begins} in {text}"))?.to_owned() + "\n")
    };

    // Both ranks fail in the same way. The launcher may end the slower one before it prints its error.
    let failed = line(&run("ddp")?.expect_code(1)?.stderr, "[rank ")?.replace("rank 1", "rank 0");
    listing += &format!("$ $BERT --method ddp 2>&1 | grep -m 1 '^.rank'\n{failed}");
    let mut losses = Vec::new();
    for method in ["ddp --find-unused-parameters", "apex"] {
        losses.push(line(&run(method)?.expect_success()?.stdout, "EP0")?);
        listing += &format!("$ $BERT --method {method} | grep EP0\n{}", losses[losses.len() - 1]);
    }
    assert_eq!(losses[0], losses[1]);
    expect_listing("bert_unused_parameters.txt", &listing, LAST_DIGIT)
}

#[test]
fn the_memory_of_each_method_is_as_the_book_shows() -> Result<()> {
    // With 8192 words, each device's share of the output is 32 MiB.
    let flags = "--vocab-size 8192 --svg bert_memory.svg --budget 256MiB";
    let arguments = format!("compare --corpus {} {flags} {UNHURRIED}", corpus());
    let program = cut_short(dp_custom_criterion(arguments.split(' '))?, &["--steps=3"]);
    let (text, svg) = printed_and_written(program, "bert_memory.svg")?;
    let (tables, rest) = after_two(&text).context("no text after the tables")?;
    let (words, budget) = rest.split_once("\nWith ").context("no budget")?;
    let tables = shown(&format!("compare --corpus {CORPUS} \\\n    {flags}")) + tables + "\n";
    expect(&[
        ("bert_memory.svg", &svg, &|picture, svg| picture == svg),
        ("bert_memory.txt", &tables, &same_amounts),
        ("bert_memory_in_words.txt", words, &same_amounts),
        ("bert_budget.txt", &format!("With {budget}"), &same_amounts),
    ])
}

/// What a training prints.
fn bert(flags: &str) -> Result<String> {
    printed(dp_custom_criterion(format!("--corpus {} {flags}", corpus()).split(' '))?)
}

fn shown(flags: &str) -> String {
    format!("$ cargo run -rq -p dp-custom-criterion -- {flags}\n")
}
