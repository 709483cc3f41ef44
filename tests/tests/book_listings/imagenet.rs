//! Chapter "The ImageNet trainer".

use super::*;

/// A small network and few images, so that the chapter takes seconds.
const SMALL: &str = "--dataset mnist -a pyramidnet8_a12 -b 64 --lr 0.05 --steps 20";

/// One test, since all listings are about the same training.
#[test]
fn a_training_its_evaluation_and_its_resumption_are_as_the_book_shows() -> Result<()> {
    let job = Job::new()?;
    let text = train(&job, 2, &format!("{SMALL} --epochs 2 -p 10 --metrics whole"))?;
    expect(&[("imagenet.txt", &text, &same_training)])?;

    let mut listing = String::new();
    for ranks in 1..=3 {
        let flags = "--dataset mnist -a pyramidnet8_a12 -e --resume model_best.safetensors";
        let text = train(&job, ranks, flags)?;
        let (command, printed) = text.split_once('\n').context("no output")?;
        let last = printed.lines().last().context("no result")?;
        listing += &format!("{command} | tail -n 1\n{last}\n");
    }
    expect_listing("imagenet_evaluate.txt", &listing, BY_FORM)?;
    let mut results: Vec<_> = listing.lines().filter(|line| line.starts_with(" *")).collect();
    results.dedup();
    assert_eq!(results.len(), 1, "{listing}");

    let mut listing = String::new();
    for flags in [
        "--epochs 1 --metrics first",
        "--epochs 2 --metrics second --resume checkpoint.safetensors",
    ] {
        train(&job, 2, &format!("{SMALL} {flags}"))?;
        listing += &format!("$ cargo launch -n 2 ddp-imagenet -- {SMALL} \\\n    {flags}\n");
    }
    let mut losses = Vec::new();
    for directory in ["whole", "second"] {
        let metrics = fs::read_to_string(job.path(directory).join("rank1.jsonl"))?;
        let of_epoch_1 =
            |line: &&str| line.contains(r#""event":"step""#) && line.contains(r#""epoch":1"#);
        let lines: Vec<_> = metrics.lines().filter(of_epoch_1).map(str::to_owned).collect();
        listing += &format!("$ grep '\"step\":' {directory}/rank1.jsonl | tail -n 2\n");
        lines.iter().rev().take(2).rev().for_each(|line| listing += &format!("{line}\n"));
        losses.push(lines);
    }
    assert_eq!(losses[0], losses[1]);
    expect_listing("imagenet_resume.txt", &listing, BY_FORM)
}

/// The command, and what it prints.
fn train(job: &Job, ranks: usize, flags: &str) -> Result<String> {
    let ended = job.run(launch(ranks, &ddp_imagenet(flags.split(' '))?)?)?.expect_success()?;
    Ok(format!("$ cargo launch -n {ranks} ddp-imagenet -- {flags}\n{}", ended.stdout))
}
