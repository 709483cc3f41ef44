//! ddp-imagenet rejects input that it cannot work with, and says what it found, where, and what it expected. All that
//! can be wrong with a file is tested in the library.

use crate::prelude::*;
use tests::imagenet::{OUTPUTS, job_with_images};

/// A network and a data set with which a training takes less than a second.
const SMALL: &str = "--arch pyramidnet8_a6 --epochs 1";
const DIGITS: &str = "--dataset mnist --steps 2";
const FOLDER: &str = "images --image-size 32";

fn small(flags: &str) -> Result<Command> {
    ddp_imagenet(SMALL.split(' ').chain(OUTPUTS).chain(flags.split_whitespace()))
}

fn on_digits(flags: &str) -> Result<Command> {
    small(&format!("{DIGITS} {flags}"))
}

#[test]
fn senseless_flags_are_refused() -> Result<()> {
    let job = Job::new()?;
    let cases: [(&str, i32, &[&str]); 12] = [
        ("--lr nan", 2, &["--lr", "nan", "a finite number not below 0"]),
        ("--lr=-0.1", 2, &["--lr", "-0.1", "a finite number not below 0"]),
        ("--momentum inf", 2, &["--momentum", "inf"]),
        ("--wd infinity", 2, &["--weight-decay", "infinity"]),
        ("--arch vgg16", 2, &["--arch", "vgg16", "resnet18", "pyramidnet"]),
        ("--batch-size 0", 1, &["--batch-size is 0", "at least 1"]),
        ("--virtual-ranks 4 --batch-size 3", 1, &["--batch-size is 3", "at least 4", "virtual"]),
        ("--image-size 64", 1, &["--image-size is 64", "left out", "32"]),
        ("--image-size 70000", 2, &["--image-size", "70000", "65535"]),
        ("--warmup-epochs 1", 1, &["--warmup-epochs is 1", "less than --epochs", "1"]),
        ("--dummy", 2, &["--dummy", "--dataset"]),
        ("--device cuda", 1, &["device", "cuda"]),
    ];
    let expect = |(flags, code, texts)| job.expect_refusal(on_digits(flags)?, code, texts);
    cases.into_iter().try_for_each(expect)
}

cases! {
    fn a_batch_that_is_smaller_than_the_world_is_refused() =
        expect_refusal(launch(3, &on_digits("--batch-size 2")?)?, 1,
            &["[rank ", "--batch-size is 2", "at least 3"]);
    fn a_directory_for_checkpoints_that_is_not_there_is_found_before_training() =
        expect_refusal(on_digits("--checkpoint-dir nowhere")?, 1, &["error: ", "nowhere"]);
}

#[test]
fn an_image_folder_that_is_not_there_is_named() -> Result<()> {
    let job = Job::new()?;
    job.expect_refusal(small("cifar --dataset cifar10")?, 1, &["error: ", "directory cifar"])?;
    job.expect_refusal(small("nowhere --image-size 32")?, 1, &["error: ", "nowhere/train"])?;
    let expected =
        "error: pyramidnet8_a6 takes images of 32×32 pixels, not 224×224: set --image-size 32";
    job.expect_refusal(small("--dummy")?, 1, &[expected])?;
    // The default folder, as in PyTorch's main.py.
    job.expect_refusal(small("--image-size 32")?, 1, &["error: ", "imagenet/train"])
}

#[test]
fn other_classes_in_validation_than_in_training_are_refused() -> Result<()> {
    let job = job_with_images(4)?;
    let val = job.path("images/val");
    fs::rename(val.join("red"), val.join("green"))?;
    job.expect_refusal(small(FOLDER)?, 1, &["error: ", "images/val", "red", "green"])
}

#[test]
fn a_corrupt_jpeg_is_named_and_fatal_unless_it_is_to_be_skipped() -> Result<()> {
    let job = job_with_images(4)?;
    fs::write(job.path("images/train/blue/1.jpg"), "this is no picture")?;
    for ranks in [1, 2] {
        let program = launch(ranks, &small(FOLDER)?)?;
        job.expect_refusal(program, 1, &["[rank ", "error: ", "train/blue/1.jpg"])?;
    }
    // But for this image, the folder is sound: the refusals here and above have no other cause.
    let ended = job.run(small(&format!("{FOLDER} --skip-bad"))?)?.expect_success()?;
    ended.expect_messages(&["images left out because they cannot be read: 1\n"])
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused() -> Result<()> {
    let job = Job::done(small(DIGITS)?)?;
    let path = job.path("old.safetensors");
    fs::rename(job.path("checkpoint.safetensors"), &path)?;
    fs::remove_dir_all(job.path("metrics"))?;
    let resume = |flags: &str| on_digits(&format!("--resume old.safetensors {flags}"));
    let texts = ["error: ", "old.safetensors", "pyramidnet8_a6", "pyramidnet8_a7"];
    job.expect_refusal(resume("--arch pyramidnet8_a7")?, 1, &texts)?;
    job.expect_refusal(resume("--schedule cosine")?, 1, &["error: ", "old.safetensors", "Cosine"])?;

    fs::write(&path, "")?;
    job.expect_refusal(resume("")?, 1, &["error: ", "old.safetensors"])?;
    fs::remove_file(&path)?;
    job.expect_refusal(resume("")?, 1, &["error: ", "old.safetensors", "No such file"])?;
    let evaluate = on_digits("--evaluate --resume auto")?;
    job.expect_refusal(evaluate, 1, &["error: ", "checkpoint.safetensors", "No such file"])
}
