//! A job of two nodes with one rank each. Only root may create the hosts; if they cannot be
//! created, the test says so.

use anyhow::Result;
use tests::programs::{ddp_mnist, launch, launch_with};
use tests::training::OUTPUTS;
use tests::{Hosts, Job, Training, expect_all_succeed};

#[test]
fn two_nodes_train_as_two_ranks_of_one_node() -> Result<()> {
    let Some(hosts) = Hosts::or_skip(2)? else { return Ok(()) };
    let flags = ["--epochs", "1", "--lr", "0.05", "--momentum", "0.9", "--timeout", "60"];
    let program = ddp_mnist(flags.into_iter().chain(OUTPUTS))?;

    let job = Job::new()?;
    let address = hosts.address(0);
    let mut nodes = Vec::new();
    for node in 0..2 {
        let mut flags = vec!["--nnodes", "2", "--node-rank", ["0", "1"][node], "-n", "1"];
        flags.extend(["--master-addr", &address, "--master-port", "29500"]);
        nodes.push(job.start(hosts.on(node, &launch_with(&flags, &program)?))?);
    }
    expect_all_succeed(nodes)?;
    let on_two_nodes = Training::of(&job, 2)?;
    drop(job);

    let job = Job::new()?;
    job.run(launch(2, &program)?)?.expect_success()?;
    on_two_nodes.expect_equal(&Training::of(&job, 2)?)
}
