//! Chapter "MNIST on several processes: DistributedDataParallel".

use super::ladder::diff_of_examples;
use super::*;

cases! {
    fn from_one_process_to_several_it_is_this_diff() =
        expect_listing("mnist_single_to_ddp.diff", &diff_of_examples("mnist_single", "mnist_ddp")?, EXACT);
}

#[test]
fn ddp_mnist_prints_what_the_book_shows() -> Result<()> {
    let (shown, program) = first_command("ddp_mnist")?;
    let job = Job::new()?;
    let ended = job.run(program)?.expect_success()?;
    // Each rank prints its first line by itself, and then rank 0 alone prints.
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines[..2].sort_unstable();
    expect_listing("ddp_mnist.txt", &(shown + &lines.join("\n") + "\n"), TRAINED)?;
    assert_eq!(job.files()?, ["metrics", "model.safetensors"]);

    let lines = |rank: usize| -> Result<Vec<String>> {
        Ok(job.text(format!("metrics/rank{rank}.jsonl"))?.lines().map(str::to_owned).collect())
    };
    let results = |rank| tests::training::epochs(job.directory(), rank);
    assert_eq!(results(0)?, results(1)?, "an epoch came to something else on rank 1");
    assert_eq!(results(0)?.len(), 10);

    let metrics = [&lines(0)?[..3], &lines(1)?[..3]].concat().join("\n");
    let metrics = format!("$ head -qn 3 metrics/*\n{metrics}\n");
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
        let [_, train_loss, val_loss, accuracy] = values[..] else { bail!("no epoch: {last}") };
        table.push_str(&format!(
            "{ranks:5}  {batch_size:12}  {lr:.2}  {steps:5}  {train_loss:>10}  {val_loss:>8}  {accuracy:>8}\n"
        ));
    }
    expect_listing("effective_batch.txt", &table, TRAINED)
}
