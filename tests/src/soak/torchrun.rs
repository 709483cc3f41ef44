//! The trainers under torchrun's elastic mode, for those who have Python. The nodes are two agents on one host.

use super::*;
use crate::programs::{free_port, torchrun_with};
use crate::{progress::stat, wait};

/// One of two nodes is lost; the other goes on from the checkpoint, as a world of one. Returns how long that takes.
pub(super) fn lost_node(_: &mut Trial) -> Result<Duration> {
    let job = Job::new()?;
    let mut program = endless_training()?;
    program.args(["--checkpoint=checkpoint.safetensors", "--save-every=10", "--resume=auto"]);
    let port = free_port()?;
    let start = |is_host: u8| {
        // torchrun's defaults wait 30 s for a third node, and 15 s for the one that is lost.
        let flags = format!(
            "--nnodes=1:3 --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{port} --rdzv-id=elastic \
             --rdzv-conf=is_host={is_host},last_call_timeout=3,keep_alive_interval=1 \
             --local-addr=127.0.0.1 --max-restarts=10 --monitor-interval=0.1"
        );
        let mut agent = torchrun_with(&flags.split(' ').collect::<Vec<_>>(), &program)?;
        agent.env("GLOO_SOCKET_IFNAME", "lo").env("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
        job.start(agent)
    };
    let (mut first, mut second) = (start(1)?, start(0)?);
    wait_for_steps(&job, 0..2, 20)?;
    let begin = Instant::now();
    let (parent, agent) = (4, second.pid().as_raw().cast_unsigned().into());
    let ranks = job.processes()?.into_iter().filter(|pid| stat(*pid, parent) == Some(agent));
    ranks.chain([second.pid()]).try_for_each(|pid| kill(pid, Signal::SIGKILL))?;
    second.wait_until(begin + PATIENCE)?;

    let late = wait::past(begin + PATIENCE);
    let (_, epoch, step) = wait::until("the rank that is left trains alone", late, || {
        let steps = events(job.directory(), 0, "step", |event| {
            Some((event["world_size"].as_u64()?, event["epoch"].as_u64()?, event["step"].as_u64()?))
        });
        // A line may be incomplete.
        let begun = steps.ok().and_then(|steps| steps.first().copied());
        Ok(begun.filter(|(world_size, ..)| *world_size == 1))
    })?;
    let took = begin.elapsed();
    ensure!((epoch, step) > (0, 0), "it has begun again");
    kill(first.pid(), Signal::SIGTERM)?;
    let ended = first.wait_until(Instant::now() + PATIENCE)?;
    ensure!(ended.stdout.contains("resumed from checkpoint.safetensors: epoch "), "{ended}");
    Ok(took)
}
