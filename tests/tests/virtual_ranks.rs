//! Trainings that have the same weights on any number of ranks: `--virtual-ranks`.

use crate::prelude::*;

/// Trains ddp-mnist with the work of twelve ranks on this number of them.
fn twelve(job: &Job, ranks: usize, save: &str, flags: &[&str]) -> Result<Process> {
    let flags = ["--virtual-ranks", "12", "--save", save].into_iter().chain(flags.iter().copied());
    job.start(launch_with(&["-n", &ranks.to_string(), "--max-restarts", "9"], &ddp_mnist(flags)?)?)
}

fn expect_same(job: &Job, a: &str, b: &str) -> Result<()> {
    let read = |file| fs::read(job.path(file));
    ensure!(read(a)? == read(b)?, "{a} and {b} differ");
    Ok(())
}

#[test]
fn twelve_virtual_ranks_have_the_same_weights_on_any_number_of_ranks() -> Result<()> {
    let job = Job::new()?;
    let train = |ranks, save: &str, flags: &[&str]| {
        let flags = [&["--batch-size", "64"], flags].concat();
        twelve(&job, ranks, save, &flags)?.wait()?.expect_success()
    };
    for ranks in [1, 2, 3, 4, 5, 6, 12] {
        let save = format!("{ranks}.safetensors");
        train(ranks, &save, &["--epochs", "2"])?;
        expect_same(&job, &save, "1.safetensors")?;
    }
    // On another number in the second epoch.
    train(4, "first.safetensors", &["--epochs", "1", "--checkpoint", "first"])?;
    train(3, "resumed.safetensors", &["--epochs", "2", "--resume", "first"])?;
    expect_same(&job, "resumed.safetensors", "1.safetensors")
}

#[test]
fn virtual_ranks_have_the_same_weights_although_ranks_are_lost_and_replaced() -> Result<()> {
    let job = Job::new()?;
    let flags = ["--batch-size", "16", "--epochs", "12"];
    let measured = [&flags[..], &["--metrics", "metrics"]].concat();
    let mut launcher = twelve(&job, 4, "replaced.safetensors", &measured)?;
    let steps_of_four = || {
        let metrics = job.text("metrics/rank0.jsonl").unwrap_or_default();
        metrics.matches(r#""world_size":4"#).count()
    };
    let mut enough = 5;
    for killed in [2, 0, 3] {
        job.until("four ranks train", || Ok((steps_of_four() >= enough).then_some(())))?;
        kill(job.rank(killed, "ddp-mnist")?, Signal::SIGKILL)?;
        enough = steps_of_four() + 5;
    }
    launcher.wait()?.expect_success()?.expect_line(&["restart 3 of 9: 3 ranks go on"])?;
    let mut sizes = events(job.directory(), 0, "step", |step| step["world_size"].as_u64())?;
    sizes.dedup();
    ensure!(sizes.starts_with(&[4, 3, 4]), "{sizes:?}");
    twelve(&job, 2, "undisturbed.safetensors", &flags)?.wait()?.expect_success()?;
    expect_same(&job, "replaced.safetensors", "undisturbed.safetensors")
}

#[test]
fn a_resnet_in_16_bits_has_the_same_weights_on_any_number_of_ranks() -> Result<()> {
    let job = Job::new()?;
    for ranks in ["3", "2", "1"] {
        fs::create_dir(job.path(ranks))?;
        let loses_a_rank = ranks == "3";
        let flags =
            "--dataset mnist --epochs 2 --steps 4 --batch-size 12 --lr 0.01 --amp bf16 --seed 1";
        let own = ["--virtual-ranks", "4", "--checkpoint-dir", ranks, "--metrics", "metrics"];
        let elastic = loses_a_rank.then_some("--elastic");
        let program = ddp_imagenet(flags.split(' ').chain(own).chain(elastic))?;
        let launcher = ["-n", ranks, "--max-restarts", "1"];
        let mut launcher = job.start(launch_with(&launcher, &program)?)?;
        if loses_a_rank {
            wait_for_steps(&job, 0..3, 1)?;
            kill(job.rank(0, "ddp-imagenet")?, Signal::SIGKILL)?;
        }
        let ended = launcher.wait()?.expect_success()?;
        let goes_on = "2 ranks go on, and another one takes its place";
        ensure!(ended.stderr.contains(goes_on) == loses_a_rank, "{ended}");
        expect_same(&job, "3/model_best.safetensors", &format!("{ranks}/model_best.safetensors"))?;
    }
    Ok(())
}
