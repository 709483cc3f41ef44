//! ddp-mnist rejects input that it cannot work with before it does any work, and says what it found, where, and what it
//! expected. All that can be wrong with a file or with the environment is tested in the library.

use crate::prelude::*;
use std::net::TcpListener;
use tests::safetensors;

/// ddp-mnist with arguments that make it fail.
fn refused(job: &Job, arguments: &[&str], texts: &[&str]) -> Result<()> {
    job.expect_refusal(ddp_mnist(OUTPUTS.into_iter().chain(arguments.iter().copied()))?, 1, texts)
}

#[test]
fn a_sound_data_set_is_accepted_and_a_broken_one_is_refused() -> Result<()> {
    const LABELS: &str = "train-labels-idx1-ubyte";
    let job = Job::new()?;
    digits::write(job.directory(), 200)?;
    // Otherwise the refusal below would prove nothing.
    job.run(ddp_mnist(["--data-dir", ".", "--epochs", "1", "--no-save"])?)?.expect_success()?;
    fs::write(job.path(LABELS), digits::labels(199))?;
    let texts = ["error: ", LABELS, "holds 199 labels", "expected 200, one for each image"];
    refused(&job, &["--data-dir", "."], &texts)
}

cases! {
    fn senseless_flags_are_refused() =
        expect_refusals(|line| ddp_mnist(OUTPUTS.into_iter().chain(line.split(' '))), &[
            ("--batch-size 0", 2, ["--batch-size", "0 is not in 1.."]),
            ("--batch-size many", 2, ["--batch-size", "many"]),
            ("--device tpu", 2, ["--device", "device is \"tpu\", but must be cpu, cuda or auto"]),
            // The tests build the programs without the feature `cuda`.
            ("--device cuda", 1, ["device is cuda", "cargo xtask run"]),
            ("--timeout 0", 2, ["--timeout", "0 is not in 1.."]),
            ("--dataset fashion-mnist --download", 1, ["--download is given for Fashion-MNIST", "for MNIST"]),
            ("--nesterov", 1, ["nesterov", "momentum"]),
            ("--lr=-1", 1, ["lr", "-1"]),
            ("--save nowhere/model.safetensors", 1, ["nowhere", "does not exist"]),
        ]);
}

#[test]
fn a_port_that_somebody_else_listens_on_is_named() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let rank_0 = as_rank(ddp_mnist(OUTPUTS)?, 0, 2, port);
    Job::new()?.expect_refusal(rank_0, 1, &["[rank 0] error:", &port.to_string(), "in use"])
}

#[test]
fn a_rank_that_never_comes_is_named() -> Result<()> {
    let job = Job::new()?;
    let flags = || OUTPUTS.into_iter().chain(["--timeout", "3"]);
    let rank_0 = as_rank(ddp_mnist(flags())?, 0, 2, free_port()?);
    job.expect_refusal(rank_0, 1, &["[rank 0] error:", "rank 1"])?;
    let rank_1 = as_rank(ddp_mnist(flags())?, 1, 2, free_port()?);
    job.expect_refusal(rank_1, 1, &["[rank 1] error:", "rank 0"])
}

#[test]
fn a_host_that_nobody_knows_is_named() -> Result<()> {
    let flags = OUTPUTS.into_iter().chain(["--timeout", "1"]);
    let mut rank_1 = as_rank(ddp_mnist(flags)?, 1, 2, free_port()?);
    // In a domain that is reserved for names that never resolve.
    rank_1.env("MASTER_ADDR", "nowhere.invalid");
    let texts = ["[rank 1] error:", "find the host MASTER_ADDR=nowhere.invalid", "after 1s"];
    Job::new()?.expect_refusal(rank_1, 1, &texts)
}

const PARAMETERS: [(&str, &[usize]); 5] = [
    ("0.weight", &[128, 784]),
    ("0.bias", &[128]),
    ("3.weight", &[128, 128]),
    ("3.bias", &[128]),
    ("5.weight", &[10, 128]),
];

#[test]
fn a_sound_checkpoint_is_accepted_with_and_without_the_prefix_module() -> Result<()> {
    let job = Job::new()?;
    let wrapped = PARAMETERS.map(|(name, shape)| (format!("module.{name}"), shape));
    let wrapped: Vec<_> = wrapped.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
    for parameters in [&PARAMETERS[..], &wrapped] {
        safetensors::write_zeros(&job.path("old.safetensors"), parameters)?;
        // If all weights are zero, all digits are equally likely, and the loss is ln 10.
        let flags = ["--load", "old.safetensors", "--epochs", "1", "--metrics", "metrics"];
        job.run(ddp_mnist(flags)?)?.expect_success()?;
        let first = losses(job.directory(), 0)?.first().copied().context("no step")?;
        assert!((first - 10_f32.ln()).abs() < 1e-6, "the checkpoint was not loaded: {first}");
    }
    Ok(())
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused() -> Result<()> {
    let job = Job::new()?;
    let path = job.path("old.safetensors");
    let load = ["--load", "old.safetensors"];
    refused(&job, &load, &["error: ", "old.safetensors", "No such file"])?;
    fs::write(&path, "")?;
    refused(&job, &load, &["error: ", "old.safetensors"])?;

    let mut other_shape = PARAMETERS;
    other_shape[2].1 = &[128, 64];
    safetensors::write_zeros(&path, &other_shape)?;
    refused(&job, &load, &["error: ", "old.safetensors", "3.weight", "128, 64", "128, 128"])
}

#[test]
fn a_loss_that_is_no_number_ends_the_training_and_says_when() -> Result<()> {
    let job = Job::new()?;
    let flags = OUTPUTS.into_iter().chain(["--lr", "1e30"]);
    let ended = job.run(launch(2, &ddp_mnist(flags)?)?)?.expect_code(1)?;
    assert!(!job.path("model.safetensors").exists(), "it saved a model: {ended}");
    ended.expect_messages(&["[rank ", "epoch 0", "step ", "NaN"])
}
