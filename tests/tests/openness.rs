//! A job on one host is not reachable from the network: the store and gloo listen on the loopback address only.

use crate::prelude::*;

/// The state of a listening socket in Linux's tables of TCP sockets.
const LISTEN: &str = "0A";

/// 127.0.0.1, and the same address mapped to IPv6, as these tables write them.
const LOOPBACK: [&str; 2] = ["0100007F", "0000000000000000FFFF00000100007F"];

/// The addresses on which a process listens, as Linux's tables write them.
fn listening_addresses(pid: Pid) -> Result<Vec<String>> {
    let mut own_sockets = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let target = fs::read_link(descriptor?.path()).unwrap_or_default();
        let inode = target.to_string_lossy();
        own_sockets.extend(inode.strip_prefix("socket:[").map(|rest| rest.replace(']', "")));
    }
    let mut addresses = Vec::new();
    for table in ["tcp", "tcp6"] {
        for line in fs::read_to_string(format!("/proc/{pid}/net/{table}"))?.lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (address, state, inode) = (fields[1], fields[3], fields[9]);
            if state == LISTEN && own_sockets.iter().any(|own| own == inode) {
                addresses.push(address.split(':').next().context("no address")?.to_owned());
            }
        }
    }
    Ok(addresses)
}

/// Looks at every process of a job whose ranks are training.
fn expect_loopback_only(job: &Job) -> Result<()> {
    wait_for_steps(job, 0..2, 1)?;
    let addresses = job.processes()?.into_iter().map(listening_addresses);
    let addresses = addresses.collect::<Result<Vec<_>>>()?.concat();
    assert!(!addresses.is_empty(), "nobody listens: then how do the ranks meet?");
    assert!(addresses.iter().all(|it| LOOPBACK.contains(&it.as_str())), "open: {addresses:?}");
    Ok(())
}

#[test]
fn ranks_that_are_launched_or_started_by_hand_listen_on_the_loopback_address_only() -> Result<()> {
    let rank = || ddp_mnist(["--epochs", "1000"].into_iter().chain(OUTPUTS));
    let job = Job::new()?;
    let _launcher = job.start(launch(2, &rank()?)?)?;
    expect_loopback_only(&job)?;
    drop(job);
    let job = Job::new()?;
    let _ranks = start_by_hand(&job, [rank(), rank()])?;
    expect_loopback_only(&job)
}
