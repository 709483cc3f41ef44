//! A job of two nodes with one rank each. Only root may create the hosts; if they cannot be created, the test says so.

use crate::prelude::*;
use tests::cluster::Cluster;

#[test]
fn two_nodes_train_as_two_ranks_of_one_node() -> Result<()> {
    if !Hosts::can_exist() {
        return Ok(());
    }
    let flags = ["--epochs", "1", "--lr", "0.05", "--momentum", "0.9", "--timeout", "60"];
    let program = ddp_mnist(flags.into_iter().chain(OUTPUTS))?;
    let mut log = String::new();
    let on_two_nodes = Cluster::with(2, &mut log, |cluster| {
        cluster.start(&["-n", "1"], &program)?;
        cluster.succeeds()?;
        Training::of(&cluster.job, 2)
    });
    on_two_nodes.context(log)?.expect_equal(&Training::run(launch(2, &program)?, 2)?)
}
