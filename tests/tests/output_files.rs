//! Where the programs write: for Perfetto (`--profile`) and TensorBoard (`--tensorboard`), to files that may not grow,
//! and to readers who may have gone.

use crate::prelude::*;

fn one_epoch() -> Result<Command> {
    ddp_mnist(["--epochs", "1", "--batch-size", "1000"])
}

/// The shell's ways to leave outputs without a reader: both, and then stdout only, so that stderr shows
/// what the program has to say about it.
const NOBODY_READS: [&str; 5] = [
    r#"{ "$@" 2>&1; echo $? >code; } | true"#,
    r#""$@" >/dev/full 2>/dev/full; echo $? >code"#,
    r#""$@" >&- 2>&-; echo $? >code"#,
    r#"{ "$@"; echo $? >code; } | true"#,
    r#""$@" >/dev/full; echo $? >code"#,
];

/// Runs the command once for each of these ways. It must end with this code.
fn expect_code_without_readers(program: &Command, code: &str) -> Result<Vec<Job>> {
    let run = |script| {
        let job = Job::new()?;
        let ended = job.run(in_shell(script, program))?;
        let found = job.text("code")?;
        ensure!(found.trim() == code, "`{script}`: exit code {found}; {ended}");
        ensure!(!ended.stderr.contains("panicked"), "`{script}`: {ended}");
        Ok(job)
    };
    NOBODY_READS.into_iter().map(run).collect()
}

#[test]
fn a_training_whose_output_nobody_reads_saves_its_model() -> Result<()> {
    for program in [one_epoch()?, launch(2, &one_epoch()?)?] {
        let jobs = expect_code_without_readers(&program, "0")?;
        jobs.iter().try_for_each(|job| job.tensors("model.safetensors").map(drop))?;
    }
    Ok(())
}

#[test]
fn texts_tables_and_help_that_nobody_reads_are_no_errors() -> Result<()> {
    let programs = [
        dp_basic(["sampler"])?,
        dp_basic(["trace", "--devices", "2xcpu"])?,
        ddp_imagenet(["--help"])?,
        launcher(["--help"])?,
    ];
    programs.iter().try_for_each(|it| expect_code_without_readers(it, "0").map(drop))
}

/// A limit on the size of files stands for a full disk here: the system also sends a signal.
#[test]
fn a_model_that_is_too_large_for_a_file_leaves_nothing_behind() -> Result<()> {
    const BLOCKS_OF_512_BYTES: &str = r#"ulimit -f 200; exec "$@""#;
    let flags = ["--epochs", "1", "--batch-size", "1000", "--metrics", "metrics", "--save"];
    let program = |file| ddp_mnist(flags.into_iter().chain([file]));
    for (program, ranks, file) in [
        (launch(2, &program("model.safetensors")?)?, 2, "model.safetensors"),
        (program("model.safetensors")?, 1, "model.safetensors"),
        (program("model.pt")?, 1, "model.pt"),
    ] {
        let job = Job::new()?;
        let ended = job.run(in_shell(BLOCKS_OF_512_BYTES, &program))?.expect_code(1)?;
        ended.expect_messages(&[&format!("cannot write {file}"), "File too large"])?;
        ensure!(!ended.stderr.contains("drop failed"), "the format's writer complains: {ended}");
        ensure!(job.files()? == ["metrics"], "{:?}: {ended}", job.files()?);
        for rank in 0..ranks {
            ensure!(losses(job.directory(), rank)?.len() == 8 / ranks, "{ended}");
        }
    }
    Ok(())
}

#[test]
fn a_log_file_that_may_not_grow_ends_and_the_job_does_not() -> Result<()> {
    let program = launcher("--log-dir logs --redirects 1 -- seq 2000".split(' '))?;
    let ended = Job::new()?.run(in_shell(r#"ulimit -f 8; exec "$@""#, &program))?;
    let said = ["cannot write to ", "stdout.log any more: File too large"];
    ended.expect_success()?.expect_line(&said)
}

#[test]
fn a_low_limit_on_open_files_is_an_error_with_the_number_that_would_do() -> Result<()> {
    let program = launch(2, &one_epoch()?)?;
    let ended = Job::new()?.run(in_shell(r#"ulimit -n 20; exec "$@""#, &program))?;
    ended.expect_code(1)?.expect_line(&[
        "the limit on open files (ulimit -n) is 20",
        "at least 28 for a world size of 2",
    ])?;
    Job::new()?.run(in_shell(r#"ulimit -n 64; exec "$@""#, &program))?.expect_success()?;
    Job::new()?.run(in_shell(r#"ulimit -S -n 20; exec "$@""#, &program))?.expect_success().map(drop)
}

/// Trains on two ranks. Each must leave a trace of forward pass, backward pass and exchange, and
/// rank 0 alone the numbers for TensorBoard.
fn expect_traces_and_curves(name: &str, flags: &str) -> Result<()> {
    let outputs = ["--profile", "traces", "--tensorboard", "curves"];
    let program = program(name, flags.split(' ').chain(outputs))?;
    let job = Job::new()?;
    let ended = job.run(launch(2, &program)?)?.expect_success()?;
    // Kineto, which records, logs its own start and that there is no GPU.
    for word in ["USDT", "ERROR"] {
        ensure!(!ended.stderr.contains(word), "{}", ended.stderr);
    }
    for rank in 0..2 {
        let trace = job.text(format!("traces/rank{rank}.json"))?;
        for name in ["aten::addmm", "AddmmBackward0", ":all_reduce"] {
            ensure!(trace.contains(name), "the trace of rank {rank} has no {name}");
        }
    }
    let curves = fs::read_dir(job.path("curves"))?.map(|file| Ok(file?.path()));
    let curves = curves.collect::<Result<Vec<_>>>()?;
    ensure!(curves.len() == 1, "{curves:?}");
    let numbers = fs::read(&curves[0])?;
    ensure!(String::from_utf8_lossy(&numbers).contains("loss"), "{curves:?} has no losses");
    Ok(())
}

/// On digits, with a small network.
const IMAGENET: &str = "--dataset mnist --no-augment -a pyramidnet8_a6 -b 8 --epochs 1 --steps 5";

const BERT: &str =
    "--method ddp --hidden 32 --layers 1 --attn-heads 2 --seq-len 16 --batch-size 16 --steps 5";

cases! {
    fn ddp_mnist_shows_its_steps_and_losses() = expect_traces_and_curves("ddp-mnist", "--epochs 1");
    fn ddp_imagenet_shows_its_steps_and_losses() = expect_traces_and_curves("ddp-imagenet", IMAGENET);
    fn dp_custom_criterion_shows_its_steps_and_losses() =
        expect_traces_and_curves("dp-custom-criterion", &format!("{BERT} --corpus {}", corpus()));
    fn an_error_that_nobody_reads_has_its_usual_code() =
        expect_code_without_readers(&ddp_mnist(["--load", "missing"])?, "1").map(drop);
}
