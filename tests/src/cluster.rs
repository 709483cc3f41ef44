//! A job over several hosts, with a launcher on each.

use crate::job::{Job, Process};
use crate::prelude::*;
use crate::{Hosts, ended::Ended, programs::launch_with};

/// Any port will do, since each host has its own.
const PORT: &str = "29500";

/// Some hosts, and a job that runs on them. Host 0 is node 0.
pub struct Cluster {
    launchers: BTreeMap<usize, Process>,
    /// Dropped before the hosts, which last as long as they have processes.
    pub job: Job,
    pub hosts: Hosts,
}

impl Cluster {
    /// Calls `examine` with new hosts. Adds all that the launchers have printed to `log`.
    pub fn with<T>(
        hosts: usize,
        log: &mut String,
        examine: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let hosts = Hosts::new(hosts).context("cannot create hosts")?;
        let mut cluster = Self { launchers: BTreeMap::new(), job: Job::new()?, hosts };
        let result = examine(&mut cluster);
        log.push_str(&cluster.printed());
        result
    }

    /// Starts a launcher on each host, with these flags and those of a static rendezvous.
    pub fn start(&mut self, flags: &[&str], program: &Command) -> Result<()> {
        let (nodes, address) = (self.hosts.count().to_string(), self.hosts.address(0));
        let common = ["--master-addr", &address, "--master-port", PORT, "--nnodes", &nodes];
        (0..self.hosts.count()).try_for_each(|host| {
            let node = ["--node-rank", &host.to_string()];
            self.launch(host, &[&common[..], &node, flags].concat(), program)
        })
    }

    pub fn launch(&mut self, host: usize, flags: &[&str], program: &Command) -> Result<()> {
        let launcher = self.hosts.on(host, &launch_with(flags, program)?);
        self.launchers.insert(host, self.job.start(launcher)?);
        Ok(())
    }

    pub fn launcher(&mut self, host: usize) -> Result<&mut Process> {
        self.launchers.get_mut(&host).with_context(|| format!("host {host} has no launcher"))
    }

    /// Waits until the launchers of these hosts have ended, at most for this time.
    pub fn ends(&mut self, hosts: &[usize], within: Duration) -> Result<Vec<Ended>> {
        let deadline = Instant::now() + within;
        hosts.iter().map(|host| self.launcher(*host)?.wait_until(deadline)).collect()
    }

    /// Waits until all launchers have ended with success, as long as they make progress.
    pub fn succeeds(&mut self) -> Result<Vec<Ended>> {
        self.launchers.values_mut().map(|launcher| launcher.wait()?.expect_success()).collect()
    }

    /// Waits until `look` finds something, as long as the launchers run and make progress.
    pub fn until<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let launchers = &mut self.launchers;
        self.job.until(what, || {
            for (host, launcher) in launchers.iter_mut() {
                ensure!(!launcher.has_ended()?, "the launcher of host {host} has ended");
            }
            look()
        })
    }

    /// Waits until there is a process that runs `program` as this rank; `None` if the job ends before.
    pub fn rank_unless_over(&mut self, rank: usize, program: &str) -> Result<Option<Pid>> {
        let launcher = self.launchers.get_mut(&0).context("host 0 has no launcher")?;
        self.job.until(&format!("{program} runs as rank {rank}, or the job is over"), || {
            if launcher.has_ended()? {
                return Ok(Some(None));
            }
            Ok(self.job.find_rank(rank, program)?.map(Some))
        })
    }

    /// Kills all processes of a host, and no longer expects anything of its launcher.
    pub fn kill(&mut self, host: usize) -> Result<()> {
        self.hosts.signal(host, Signal::SIGKILL)?;
        self.launchers.remove(&host);
        Ok(())
    }

    fn printed(&mut self) -> String {
        let printed = self.launchers.iter_mut().map(|(host, launcher)| {
            let so_far = launcher.wait_until(Instant::now());
            let text = so_far.map_or_else(|running| format!("{running:#}"), |all| all.to_string());
            format!("host {host}: {text}\n\n")
        });
        printed.collect()
    }
}
