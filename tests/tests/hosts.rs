//! Jobs over several hosts, and what happens to their hosts, processes and network: the faults that `cargo xtask soak`
//! provokes many times, once each. Only root may create the hosts; if they cannot be created, the tests say so.

use crate::prelude::*;
use tests::cluster::Cluster;
use tests::soak::{LINES, Size, Trial};

/// How much longer than elsewhere a fault may take to be noticed while other tests run.
const LOADED: u32 = 4;

fn holds(name: &str) -> Result<()> {
    if Hosts::can_exist() { try_once(name, |limit| LOADED * limit) } else { Ok(()) }
}

/// Provokes a fault once, and allows it another time than its limit.
pub(crate) fn try_once(name: &str, allowed: impl Fn(Duration) -> Duration) -> Result<()> {
    let line = LINES.iter().find(|line| line.name == name).context("there is no such line")?;
    let mut trial = Trial::new(0, Size::QUICK);
    let took = (line.trial)(&mut trial).with_context(|| trial.log.clone())?;
    let in_time = line.limit.is_none_or(|limit| took < allowed(limit));
    ensure!(in_time, "it took {took:?}\n\n{}", trial.log);
    Ok(())
}

cases! {
    fn a_killed_rank_ends_the_ranks_of_all_hosts_and_each_names_it() = holds("killed-rank");
    fn a_killed_launcher_ends_the_ranks_of_all_hosts_and_each_names_its_host() = holds("killed-launcher");
    fn a_host_that_vanishes_ends_the_ranks_of_the_others_and_each_names_it() = holds("killed-host");
    fn a_host_that_falls_silent_is_taken_for_lost() = holds("stopped-host");
    fn a_host_that_is_cut_off_for_good_ends_by_itself() = holds("link-down");
    fn a_host_that_is_cut_off_for_a_moment_goes_on() = holds("partition");
    fn a_network_that_delays_packets_slows_the_training_and_no_more() = holds("delay");
    fn a_network_that_loses_packets_slows_the_training_and_no_more() = holds("loss");
    fn a_rank_that_is_killed_and_started_again_changes_no_bit() = holds("restarts");
    fn an_elastic_job_loses_no_sample_when_nodes_come_and_go() = holds("elastic");
    fn killed_hosts_come_again_while_the_others_go_on_and_every_sample_counts_once() =
        holds("replaced-hosts");
}

#[test]
fn two_nodes_train_as_two_ranks_of_one_node() -> Result<()> {
    if !Hosts::can_exist() {
        return Ok(());
    }
    let flags = crate::hooks_parity::FLAGS;
    let program = ddp_mnist(flags.split(' ').chain(["--timeout", "60"]).chain(OUTPUTS))?;
    let mut log = String::new();
    let on_two_nodes = Cluster::with(2, &mut log, |cluster| {
        cluster.start(&["-n", "1"], &program)?;
        cluster.succeeds()?;
        Training::of(&cluster.job, 2)
    });
    on_two_nodes.context(log)?.expect_equal(&*Training::launched(2, flags)?)
}
