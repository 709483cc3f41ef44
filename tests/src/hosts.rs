//! Several hosts on one machine, with a network that can fail: a network namespace for each host,
//! and a switch that delays, loses or stops what they send. Only root may create them.

mod switch;

use crate::{prelude::*, programs::started_by};
use nix::unistd::geteuid;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
pub use switch::{Conditions, Switch, Traffic};
use tempfile::TempDir;

const INTERFACE: &str = "cable";

/// Starts a program under a host's name, and with its boot ID: the library compares these to find out which ranks share
/// a host. The mount is the program's own, since `ip netns exec` has left the machine's mount namespace.
const AS_HOST: &str = r#"echo "$0" > /proc/sys/kernel/hostname &&
    mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@""#;

/// Hosts that can reach each other and nothing else. They and their network are removed when this goes out of scope.
pub struct Hosts {
    names: Vec<String>,
    /// A file for each host.
    boot_ids: TempDir,
    pub switch: Switch,
}

impl Hosts {
    pub fn new(count: usize) -> Result<Self> {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        // Made before the first command that may fail, so that dropping it removes whatever has been created by then.
        let boot_ids = tempfile::tempdir()?;
        let mut hosts = Self { names: Vec::new(), boot_ids, switch: Switch::default() };
        for host in 0..count {
            hosts.names.push(format!("tch-{}-{call}-{host}", process::id()));
            // Each read returns a new one.
            fs::write(hosts.boot_id(host), fs::read("/proc/sys/kernel/random/uuid")?)?;
            let name = &hosts.names[host];
            ip(&["netns", "add", name])?;
            let tap = hosts.switch.add_port()?;
            ip(&["link", "set", &tap, "netns", name, "name", INTERFACE])?;
            let address = switch::address(host).map(|byte| format!("{byte:02x}")).join(":");
            ip(&["-netns", name, "link", "set", INTERFACE, "address", &address])?;
            let address = format!("{}/24", hosts.address(host));
            ip(&["-netns", name, "address", "add", &address, "dev", INTERFACE])?;
            ip(&["-netns", name, "link", "set", INTERFACE, "up"])?;
            ip(&["-netns", name, "link", "set", "lo", "up"])?;
        }
        hosts.switch.start()?;
        Ok(hosts)
    }

    /// The same; `None`, and a sentence on stderr, if no hosts can be created here.
    pub fn or_skip(count: usize) -> Result<Option<Self>> {
        if Self::can_exist() { Self::new(count).map(Some) } else { Ok(None) }
    }

    /// Whether hosts can be created here. If not, stderr says what is missing.
    pub fn can_exist() -> bool {
        let missing = if !geteuid().is_root() {
            "root"
        } else if !Path::new("/dev/net/tun").exists() {
            "/dev/net/tun"
        } else if Command::new("ip").arg("-V").output().is_err() {
            "iproute2's `ip`"
        } else {
            return true;
        };
        eprintln!("skipped: hosts require {missing}");
        false
    }

    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// A host's address, from a range that is reserved for documentation and never assigned.
    pub fn address(&self, host: usize) -> String {
        format!("192.0.2.{}", host + 1)
    }

    /// A host's name, as its processes see it.
    pub fn name(&self, host: usize) -> String {
        format!("host{host}")
    }

    pub fn on(&self, host: usize, command: &Command) -> Command {
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.names[host], "unshare", "--uts", "sh", "-c", AS_HOST]);
        there.arg(self.name(host)).arg(self.boot_id(host));
        started_by(there, command)
    }

    fn boot_id(&self, host: usize) -> PathBuf {
        self.boot_ids.path().join(host.to_string())
    }

    pub fn processes(&self, host: usize) -> Result<Vec<Pid>> {
        let pids = ip(&["netns", "pids", &self.names[host]])?;
        pids.lines().map(|pid| Ok(Pid::from_raw(pid.trim().parse()?))).collect()
    }

    /// Sends a signal to all processes of a host, and to those that they start meanwhile.
    pub fn signal(&self, host: usize, signal: Signal) -> Result<()> {
        let mut told = Vec::new();
        loop {
            let mut new = self.processes(host)?;
            new.retain(|pid| !told.contains(pid));
            if new.is_empty() {
                return Ok(());
            }
            for pid in new {
                // It may have ended by itself at this moment.
                let _ = kill(pid, signal);
                told.push(pid);
            }
        }
    }

    pub fn set_link(&self, host: usize, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        ip(&["-netns", &self.names[host], "link", "set", INTERFACE, state]).map(drop)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| drop(ip(&["netns", "delete", name])));
    }
}

/// Runs iproute2's `ip`, and returns what it prints.
fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().context("cannot run `ip`")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests;
