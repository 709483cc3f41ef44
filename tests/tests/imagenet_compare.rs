//! ddp-imagenet's comparison of four trainings: what it shows, and what it rejects. What becomes of its trainings is
//! `exhibit-kit`'s to decide, as in `bert_bad_input`.

use crate::prelude::*;

fn compare(flags: &[&str]) -> Result<Command> {
    let sizes = ["compare", "--arch=pyramidnet8_a6", "--batch-size=8", UNHURRIED];
    ddp_imagenet(sizes.iter().chain(flags).copied())
}

const RUNS: [&str; 5] =
    ["single, SGD", "data-parallel, SGD", "data-parallel, Adam", "ddp, SGD", "apex, SGD"];

#[test]
fn compare_shows_all_methods_in_a_table_in_words_and_in_charts() -> Result<()> {
    let job = Job::new()?;
    // Enough images that a rank reaches its peak long after gloo's threads have freed the running
    // statistics that they sent before.
    let flags = ["--batch-size=64", "--steps=3", "--plot=charts"];
    let ended = job.run(compare(&flags)?)?.expect_success()?;
    let printed = &ended.stdout;
    let mut tables = printed.split("\n\n").map(|table| table.lines().skip(1).collect::<Vec<_>>());
    let trainings = tables.next().unwrap_or_default();
    assert_eq!(trainings.len(), RUNS.len(), "{printed}");
    for (run, row) in RUNS.iter().zip(trainings) {
        assert!(row.starts_with(run) && row.contains("projected"), "{printed}");
    }
    // One row for every device of every training.
    assert_eq!(tables.next().map(|devices| devices.len()), Some(9), "{printed}");
    // Paragraphs are wrapped.
    let in_one_line = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let texts = [
        "2 x 32",
        "The outputs that cpu:0 gathers, of 32 images, take 1.25 KiB.",
        "30,720 bytes",
        // S4.49
        "it advises distributed training with several GPUs, which is ddp and apex here",
    ];
    expect_texts(&in_one_line, &texts)?;
    assert_eq!(printed.matches("all ranks need the same, to the byte").count(), 2, "{printed}");
    // Meanwhile, the trainings printed the article's lines.
    for run in RUNS {
        let line = format!("{run:<20}| Epoch: [0/");
        assert!(ended.stderr.contains(&line), "no {line}: {}", ended.stderr);
    }
    assert_eq!(job.files()?, ["charts"]);
    let charts = ["memory.svg", "speed.svg", "utilisation.svg"].map(|it| format!("charts/{it}"));
    charts.into_iter().try_for_each(|chart| expect_texts(&job.text(chart)?, &RUNS))
}

#[test]
fn a_whole_epoch_is_measured_instead_of_projected() -> Result<()> {
    let job = Job::new()?;
    digits::write(job.directory(), 80)?;
    let flags = ["--dataset=mnist", ".", "--batch-size=20", "--single-batch-size=20", "--steps=4"];
    let printed = job.run(compare(&flags)?)?.expect_success()?.stdout;
    assert_eq!(printed.matches(" measured ").count(), RUNS.len(), "{printed}");
    assert!(printed.contains("1 x 20") && printed.contains("2 x 10"), "{printed}");
    Ok(())
}

#[test]
fn what_cannot_be_compared_is_refused() -> Result<()> {
    let rank = launch(1, &ddp_imagenet(["compare"])?)?;
    expect_refusal(rank, 1, &["compare starts all ranks by itself: run it without a launcher"])?;
    let lines = [
        ("--devices=cpu:0", 1, ["--devices is cpu:0, but must be at least two devices"]),
        ("--batch-size=1", 1, ["--batch-size is 1, but must be 2 or a multiple of it"]),
        ("--batch-size=9", 1, ["--batch-size is 9, but must be 2 or a multiple of it"]),
        ("--batch-size=8000", 1, ["data set has 8000 images, which is less than three batches"]),
        ("--steps=2", 2, ["invalid value '2' for '--steps"]),
        ("--single-batch-size=0", 2, ["invalid value '0' for '--single-batch-size"]),
        ("--dataset=cifar10", 1, ["expected the binary version of CIFAR-10"]),
    ];
    expect_refusals(|flag| compare(&[flag]), &lines)
}
