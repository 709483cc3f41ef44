//! `cargo xtask bench fsdp`: a sharded GPT against copies of it, and against Python's.

use super::mnist::Run;
use super::*;
use crate::launch::LAUNCHER;

const EXAMPLE: &str = "mingpt";
const SCRIPT: &str = "tests/python/mingpt.py";
/// 53 million parameters, 204 MiB, with few activations.
const GPT: [&str; 5] =
    ["--n-layer=10", "--n-embd=640", "--n-head=8", "--block-size=32", "--batch-size=2"];
/// Enough for the text's 12 steps on two ranks.
const CHARACTERS: usize = 32 + 54;

pub(super) fn run(workspace: &Workspace, venv: &Venv, rounds: &Rounds) -> Result<()> {
    let folder = workspace.target.join("bench/fsdp");
    let build = ["build", "--release", "--package", "tch-parallel", "--example", EXAMPLE];
    command::run(workspace.cargo().args(build))?;
    command::run(workspace.cargo().args(["build", "--release", "--package", LAUNCHER]))?;
    let text = folder.join("text");
    write(&text, ('a'..='z').cycle().take(CHARACTERS).collect::<String>())?;

    let measure = |mut program: Command, name: &str, flags: &[&str]| {
        program.args(GPT).args(flags).arg("--text").arg(&text).env("OMP_NUM_THREADS", "1");
        mnist::job(&mut program, folder.join(name))
    };
    let rust = |name: &str, flags: &[&str]| {
        let mut launch = Command::new(workspace.release_executable("launch"));
        launch.args(["-n", "2"]).arg(workspace.release_executable("examples").join(EXAMPLE));
        measure(launch, name, flags)
    };
    let python = |name: &str, flags: &[&str]| {
        let mut torchrun = Command::new(venv.executable("torchrun"));
        torchrun.args(["--standalone", "--nproc-per-node=2"]).arg(checkout().join(SCRIPT));
        measure(torchrun, name, flags)
    };

    let [ddp, fsdp, checkpointed, python_ddp, python_fsdp] = &rounds.run(|| {
        Ok([
            rust("ddp", &[])?,
            rust("fsdp", &["--fsdp"])?,
            rust("checkpointed", &["--fsdp", "--checkpoint-activations"])?,
            python("python-ddp", &[])?,
            python("python-fsdp", &["--fsdp"])?,
        ])
    })?;
    for (names, [first, second], [step, memory]) in [
        (["fully_shard", "DDP"], [fsdp, ddp], [1.15, 0.6]),
        (["fully_shard", "Python's"], [fsdp, python_fsdp], [0.6, 0.6]),
        (["DDP", "Python's"], [ddp, python_ddp], [1.0, 1.0]),
        (["checkpointed", "fully_shard"], [checkpointed, fsdp], [1.4, 1.0]),
    ] {
        let of = |figure: fn(&Run) -> f64| -> Sides {
            first.iter().zip(second).map(|(a, b)| [figure(a), figure(b)]).collect()
        };
        let mut table = Table::new(names);
        table.row("a training step", of(|run| run.step), MILLISECONDS, step);
        table.row("peak memory of a rank", of(|run| run.peak_rss), MEGABYTES, memory);
        println!("{table}");
    }
    println!(
        "A GPT of 10 blocks, 53 million parameters, AdamW, 2 ranks on one host, 1 thread each: medians of {} alternating rounds.\n\
         A step is the median of 12, of the slower rank. Memory is the resident set's peak.",
        rounds.number
    );
    Ok(())
}
