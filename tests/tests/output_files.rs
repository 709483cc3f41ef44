//! Where the programs write: to files that may not grow, and to readers who may have gone.

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
    let mut jobs = Vec::new();
    for script in NOBODY_READS {
        let job = Job::new()?;
        let ended = job.run(in_shell(script, program))?;
        let found = job.text("code")?;
        ensure!(found.trim() == code, "`{script}`: exit code {found}; {ended}");
        ensure!(!ended.stderr.contains("panicked"), "`{script}`: {ended}");
        jobs.push(job);
    }
    Ok(jobs)
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

#[test]
fn an_error_that_nobody_reads_has_its_usual_code() -> Result<()> {
    expect_code_without_readers(&ddp_mnist(["--load", "missing"])?, "1").map(drop)
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
