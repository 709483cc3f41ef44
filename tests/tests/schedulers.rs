//! The examples of the folder `cluster`, with the variables that the schedulers set. This machine stands for two nodes.

use crate::prelude::*;

/// Set by Kubeflow's training operator 1.9 (envvar.go).
const PYTORCHJOB: &str = "PYTHONUNBUFFERED=1 MASTER_ADDR={host} MASTER_PORT={port} \
    PET_MASTER_ADDR={host} PET_MASTER_PORT={port} WORLD_SIZE=4 RANK={node} PET_NODE_RANK={node} \
    PET_NPROC_PER_NODE=2 PET_NNODES=2";
/// The same for a PyTorchJob with an `elasticPolicy` (elastic.go).
const ELASTIC: &str = "PYTHONUNBUFFERED=1 PET_NPROC_PER_NODE=2 PET_RDZV_ENDPOINT={host}:{port} \
    PET_RDZV_BACKEND=c10d PET_NNODES=1:2 PET_MAX_RESTARTS=3";
/// Set by Kubeflow Trainer 2 (torch.go).
const TRAINJOB: &str = "PET_NNODES=2 PET_NPROC_PER_NODE=2 PET_NODE_RANK={node} \
    PET_MASTER_ADDR={host} PET_MASTER_PORT={port}";

const FLAGS: &str = "--lr 0.05 --momentum 0.9 --epochs 1";

/// A command, as it runs in an image or on a cluster where Slurm and the programs are installed.
fn command(words: &[&str]) -> Result<Command> {
    let program = ddp_mnist([])?;
    let installed = Path::new(program.get_program()).parent().context("it lies in a folder")?;
    let slurm = workspace().join("tests/slurm");
    let path = format!("{}:{}:{}", installed.display(), slurm.display(), env::var("PATH")?);
    let mut command = clean(words[0].as_ref());
    command.args(&words[1..]).args(FLAGS.split(' ')).args(OUTPUTS).env("PATH", path);
    Ok(command)
}

/// Expects what four ranks on one node train.
fn expect_training(start: impl FnOnce(&Job) -> Result<Vec<Process>>) -> Result<()> {
    let job = Job::new()?;
    expect_all_succeed(start(&job)?)?;
    Training::of(&job, 4)?.expect_equal(&*Training::launched(4, FLAGS)?)
}

fn under_slurm(script: &str) -> Result<()> {
    let script = workspace().join("cluster").join(script);
    let mut sbatch = command(&["sbatch", &script.display().to_string(), "ddp-mnist"])?;
    // The scripts derive the port from it.
    sbatch.env("SLURM_JOB_ID", (free_port()? - 20_000).to_string());
    expect_training(|job| Ok(vec![job.start(sbatch)?]))
}

fn in_pods(example: &str, variables: &str) -> Result<()> {
    let text = source(Path::new("cluster").join(example))?;
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("command: "));
    let port = free_port()?.to_string();
    expect_training(|job| {
        let start = |(node, line): (usize, &str)| {
            let words: Vec<&str> = serde_json::from_str(line)?;
            let variables = variables.replace("{node}", &node.to_string());
            let variables = variables.replace("{host}", "127.0.0.1").replace("{port}", &port);
            let pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
            job.start(command(&words)?.envs(pairs))
        };
        lines.cycle().take(2).enumerate().map(start).collect()
    })
}

cases! {
    fn tasks_of_srun_are_ranks() = under_slurm("tasks.sbatch");
    fn launchers_that_srun_starts_are_nodes() = under_slurm("elastic.sbatch");
    fn pods_of_a_pytorchjob_are_nodes() = in_pods("pytorchjob.yaml", PYTORCHJOB);
    fn pods_of_an_elastic_pytorchjob_are_nodes() = in_pods("pytorchjob.yaml", ELASTIC);
    fn pods_of_a_trainjob_are_nodes() = in_pods("trainjob.yaml", TRAINJOB);
}
