//! Rust ranks and Python ranks train in one job, and ddp-mnist computes the same numbers whatever starts it.

use crate::prelude::*;

/// Settings under which a difference would show: momentum carries it on, and two epochs shuffle twice.
const FLAGS: &str = "--epochs 2 --lr 0.05 --momentum 0.9";

fn flags() -> impl Iterator<Item = &'static str> {
    FLAGS.split(' ').chain(OUTPUTS)
}

#[test]
fn a_python_rank_and_a_rust_rank_train_together_whichever_comes_first() -> Result<()> {
    let python = || python("ddp_mnist", flags());
    let rust = || ddp_mnist(flags());
    let two_python_ranks = Training::by_hand([python(), python()])?;
    Training::by_hand([python(), rust()])?.expect_equal(&two_python_ranks)?;
    Training::by_hand([rust(), python()])?.expect_equal(&two_python_ranks)
}

cases! {
    fn torchrun_starts_ddp_mnist_as_launch_does() =
        Training::run(torchrun(2, &ddp_mnist(flags())?)?, 2)?.expect_equal(&*Training::launched(2, FLAGS)?);
    fn ranks_started_by_hand_train_as_launched_ones() =
        Training::by_hand([ddp_mnist(flags()), ddp_mnist(flags())])?.expect_equal(&*Training::launched(2, FLAGS)?);
}

#[test]
fn launch_starts_python_as_torchrun_does() -> Result<()> {
    let program = python("ddp_mnist", flags())?;
    Training::run(torchrun(2, &program)?, 2)?.expect_equal(&Training::run(launch(2, &program)?, 2)?)
}

#[test]
fn launch_starts_cargo_run() -> Result<()> {
    let job = Job::new()?;
    let output = |name| job.path(name).display().to_string();
    let mut cargo = cargo();
    // With `--package`, cargo would choose the features of dependencies for this package alone, and
    // compile half of them anew.
    cargo.args(["run", "--release", "--bin", "ddp-mnist", "--"]);
    cargo.args(FLAGS.split(' ')).args(["--metrics", &output("metrics")]);
    cargo.args(["--save", &output("model.safetensors")]).env("OMP_NUM_THREADS", "1");
    job.run(launch(2, &cargo)?)?.expect_success()?;
    Training::of(&job, 2)?.expect_equal(&*Training::launched(2, FLAGS)?)
}

#[test]
fn torchrun_may_start_all_ranks_again() -> Result<()> {
    let program = ddp_mnist(["--epochs", "1", "--no-save"])?;
    // torchrun's store remembers the first attempt. A rank fails only when both are done, because
    // torchrun ends the other as soon as one fails.
    const FAILS_ONCE: &str = r#"
        "$@" || exit
        touch done.$TORCHELASTIC_RESTART_COUNT.$RANK
        for rank in 0 1; do
            while [ ! -e done.$TORCHELASTIC_RESTART_COUNT.$rank ]; do sleep 0.01; done
        done
        [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]"#;
    let mut torchrun = torchrun(2, &in_shell(FAILS_ONCE, &program))?;
    torchrun.env("PET_MAX_RESTARTS", "1");
    let printed = printed(torchrun)?;
    assert_eq!(printed.lines().filter(|line| line.starts_with("Epoch=0")).count(), 2, "{printed}");
    Ok(())
}

#[test]
fn ranks_meet_at_the_address_that_a_hosts_own_name_often_has() -> Result<()> {
    let job = Job::new()?;
    let program = ddp_mnist(["--epochs", "1", "--no-save"])?;
    let script = r#"MASTER_ADDR=127.0.1.1 exec "$@""#;
    expect_all_succeed(start_by_hand(&job, (0..2).map(|_| Ok(in_shell(script, &program))))?)
}
