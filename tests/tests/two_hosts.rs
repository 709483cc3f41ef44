//! A job of two nodes with one rank each. The hosts are network namespaces, joined by a pair of
//! virtual interfaces. Only root may create them; if they cannot be created, the test says so.

use std::process::{self, Command};

use anyhow::{Context, Result, ensure};
use tests::programs::{ddp_mnist, launch, launch_with};
use tests::training::OUTPUTS;
use tests::{Job, Training, expect_all_succeed};

/// The addresses of the two hosts, from a range that is reserved for documentation and never
/// assigned.
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// Two hosts that can reach each other and nothing else. They and their connection are removed when
/// this goes out of scope.
struct TwoHosts {
    names: [String; 2],
}

impl TwoHosts {
    fn new() -> Result<Self> {
        // Made before the first command that may fail, so that dropping it removes whatever has
        // been created by then.
        let hosts = Self { names: ["a", "b"].map(|end| format!("tch-{}{end}", process::id())) };
        let [a, b] = &hosts.names;
        for name in &hosts.names {
            ip(&["netns", "add", name])?;
        }
        ip(&["-netns", a, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", b])?;
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            ip(&["-netns", name, "address", "add", &format!("{address}/24"), "dev", "cable"])?;
            ip(&["-netns", name, "link", "set", "cable", "up"])?;
            ip(&["-netns", name, "link", "set", "lo", "up"])?;
        }
        Ok(hosts)
    }

    /// The command, to run on this host.
    fn on(&self, host: usize, command: &Command) -> Command {
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.names[host]]);
        there.arg(command.get_program()).args(command.get_args());
        // Two real hosts have no memory in common.
        there.env("TCH_PARALLEL_SHARED_MEMORY", "0");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// Runs iproute2's `ip`.
fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot run `ip`")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), stderr.trim());
    Ok(())
}

#[test]
fn two_nodes_train_as_two_ranks_of_one_node() -> Result<()> {
    let hosts = match TwoHosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => {
            eprintln!("skipped: no network namespaces can be made here: {reason:#}");
            return Ok(());
        }
    };
    let flags = ["--epochs", "1", "--lr", "0.05", "--momentum", "0.9", "--timeout", "60"];
    let program = ddp_mnist(flags.into_iter().chain(OUTPUTS))?;

    let job = Job::new()?;
    let mut nodes = Vec::new();
    for node in 0..2 {
        let mut flags = vec!["--nnodes", "2", "--node-rank", ["0", "1"][node], "-n", "1"];
        flags.extend(["--master-addr", ADDRESSES[0], "--master-port", "29500"]);
        nodes.push(job.start(hosts.on(node, &launch_with(&flags, &program)?))?);
    }
    expect_all_succeed(nodes)?;
    let on_two_nodes = Training::of(&job, 2)?;
    drop(job);

    let job = Job::new()?;
    job.run(launch(2, &program)?)?.expect_success()?;
    on_two_nodes.expect_equal(&Training::of(&job, 2)?)
}
