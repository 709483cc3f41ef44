//! A rank that fails for a reason of its own. The ranks are on one host.

use super::*;
use crate::programs::with_small_disk;

const RANKS: usize = 3;

/// Returns how long the whole job took.
pub(super) fn disk_full(_: &mut Trial) -> Result<Duration> {
    let begin = Instant::now();
    let program = ddp_mnist(["--epochs", "1", "--save", "disk/model.safetensors"])?;
    let ended = Job::new()?.run(with_small_disk(&launch(RANKS, &program)?))?;
    expect_rank_0(ended, "No space left on device")?;
    Ok(begin.elapsed())
}

/// From some moment on, rank 0 gets no more memory. Returns how long the job goes on after that.
pub(super) fn out_of_memory(_: &mut Trial) -> Result<Duration> {
    let job = Job::new()?;
    let mut program = endless_training()?;
    // As large as what malloc asks the system for.
    program.args(["--batch-size", "1024"]);
    let mut launcher = job.start(launch(RANKS, &program)?)?;
    wait_for_steps(&job, 0..RANKS, 2)?;
    let begin = Instant::now();
    allow_no_more_memory(job.rank(0, "ddp-mnist")?)?;
    expect_rank_0(launcher.wait_until(begin + PATIENCE)?, "can't allocate memory")?;
    Ok(begin.elapsed())
}

fn allow_no_more_memory(process: Pid) -> Result<()> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let size = status.lines().find_map(|it| it.strip_prefix("VmSize:")?.split_whitespace().next());
    let bytes = 1024 * size.context("the process has no memory")?.parse::<u64>()?;
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &process.to_string(), &format!("--as={bytes}")]);
    ensure!(prlimit.status().context("cannot run `prlimit`")?.success(), "prlimit failed");
    Ok(())
}

fn expect_rank_0(ended: Ended, reason: &str) -> Result<()> {
    ensure!(!ended.status.success(), "the job has succeeded: {ended}");
    ended.expect_line(&["launch: rank 0 ", reason])
}
