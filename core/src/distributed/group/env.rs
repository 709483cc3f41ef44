//! This process's place in the job, as the launcher's environment describes it.

use crate::{Error, Result};
use std::{collections::HashMap, iter::repeat_n, os::fd::RawFd};
use tch_parallel_contract::LISTEN_FD;

/// The port where the ranks of one host meet by default, as in torchrun.
const DEFAULT_PORT: u16 = 29500;

/// A rank, and where it meets the others.
///
/// PyTorch's `env://` rendezvous. torchrun and `launch` set the variables; without RANK, those of Open MPI, MPICH or
/// SLURM count.
///
/// ```
/// use tch_parallel::distributed::Env;
///
/// let rank = Env::read()?.map_or(0, |env| env.rank);
/// assert_eq!(rank, 0); // no launcher has started this process
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Env {
    /// RANK: the number of this process in the job, from 0.
    pub rank: usize,
    /// WORLD_SIZE: the number of processes in the job.
    pub world_size: usize,
    /// LOCAL_RANK: the number of this process on its host, from 0; selects its GPU.
    pub local_rank: usize,
    /// LOCAL_WORLD_SIZE: the number of processes of the job on this host.
    pub local_world_size: usize,
    /// MASTER_ADDR: the host of rank 0.
    pub master_addr: String,
    /// MASTER_PORT: the port of the store on that host.
    pub master_port: u16,
    /// TORCHELASTIC_USE_AGENT_STORE: torchrun serves the store, not rank 0.
    pub agent_store: bool,
    /// TORCHELASTIC_RESTART_COUNT: how often the launcher has restarted all ranks.
    pub restart_count: usize,
    /// Rank 0's inherited listening socket, if the parent process bound the port.
    pub(crate) listen_fd: Option<RawFd>,
    /// Whether the launcher goes on with the others when a rank is gone.
    pub(crate) is_elastic: bool,
}

impl Env {
    /// Reads the environment. `None` if no launcher started this process, or mpirun or srun started it alone and
    /// MASTER_PORT is not set.
    ///
    /// # Errors
    /// [`Error::Environment`], naming the variable: if some are missing, one is not a number, or the rank is too large.
    pub fn read() -> Result<Option<Env>> {
        Self::from_variables(variable)
    }

    /// The place that a call gives, which the environment completes.
    pub(crate) fn given(rank: usize, world_size: usize, store: Option<(&str, u16)>) -> Result<Env> {
        let env = Self::from_variables(|name| match (name, store) {
            ("RANK", _) => Some(rank.to_string()),
            ("WORLD_SIZE", _) => Some(world_size.to_string()),
            ("MASTER_ADDR", Some((host, _))) => Some(host.to_owned()),
            ("MASTER_PORT", Some((_, port))) => Some(port.to_string()),
            _ => variable(name),
        })?;
        env.ok_or_else(|| missing("RANK", "WORLD_SIZE", "this process's number, from 0"))
    }

    /// The place that these variables describe, in a job whose ranks come and go.
    pub(crate) fn in_an_elastic_job(variables: &HashMap<String, String>) -> Result<Env> {
        let env = Self::from_variables(|name| variables.get(name).cloned())?;
        let env =
            env.ok_or_else(|| missing("RANK", "MASTER_ADDR", "this process's number, from 0"))?;
        Ok(Env { is_elastic: true, ..env })
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Env>> {
        let Some(set_by) = launcher(&get)? else { return Ok(None) };
        let Some(rank) = number(&get, set_by.rank, "this process's number, from 0")? else {
            return Ok(None);
        };
        let Some(world_size) = number(&get, set_by.world_size, "the number of processes")? else {
            return Err(missing(set_by.world_size, set_by.rank, "the number of processes"));
        };
        let local_rank = number(&get, set_by.local_rank, "a number from 0")?.unwrap_or(rank);
        let node = number(&get, "SLURM_NODEID", "a number from 0")?.unwrap_or(0);
        let local_world_size = get(set_by.local_world_size).and_then(|list| tasks_on(node, &list));
        let restart_count = number(&get, "TORCHELASTIC_RESTART_COUNT", "a number from 0")?;
        if world_size == 0 {
            return Err(wrong(set_by.world_size, "is \"0\"", "at least 1 process"));
        }
        if rank >= world_size {
            let expected = format!("a rank below {}, which is {world_size}", set_by.world_size);
            return Err(wrong(set_by.rank, format!("is \"{rank}\""), expected));
        }
        // Alone it needs no port, which another program may have.
        if world_size == 1 && set_by != &TORCHRUN && get("MASTER_PORT").is_none() {
            return Ok(None);
        }

        // Only if all ranks share a host is there a safe default.
        let one_host = set_by != &TORCHRUN && local_world_size == Some(world_size);
        // Ranks started by hand often set only RANK and WORLD_SIZE: then all are on this host.
        let local_world_size = local_world_size.unwrap_or(world_size);
        let master_addr = match get("MASTER_ADDR") {
            Some(address) => address,
            None if one_host => "127.0.0.1".into(),
            None => return Err(missing("MASTER_ADDR", set_by.rank, "the host of rank 0")),
        };
        let free_port = "a free port on rank 0's host";
        let master_port = match number(&get, "MASTER_PORT", free_port)? {
            Some(port) => u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
                wrong("MASTER_PORT", format!("is \"{port}\""), "a port from 1 to 65535")
            })?,
            None if one_host => DEFAULT_PORT,
            None => return Err(missing("MASTER_PORT", set_by.rank, free_port)),
        };
        let listen_fd = number(&get, LISTEN_FD, "a file descriptor")?;
        Ok(Some(Env {
            rank,
            world_size,
            local_rank,
            local_world_size,
            master_addr,
            master_port,
            agent_store: get("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True"),
            restart_count: restart_count.unwrap_or(0),
            listen_fd: listen_fd.and_then(|fd| RawFd::try_from(fd).ok()).filter(|_| rank == 0),
            is_elastic: false,
        }))
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// One launcher's names for these variables.
#[derive(Debug, PartialEq, Eq)]
struct Names {
    rank: &'static str,
    world_size: &'static str,
    local_rank: &'static str,
    local_world_size: &'static str,
    launcher: &'static str,
}

const TORCHRUN: Names = Names {
    rank: "RANK",
    world_size: "WORLD_SIZE",
    local_rank: "LOCAL_RANK",
    local_world_size: "LOCAL_WORLD_SIZE",
    launcher: "launch or torchrun",
};

const OTHERS: [Names; 3] = [
    Names {
        rank: "OMPI_COMM_WORLD_RANK",
        world_size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        launcher: "Open MPI's mpirun",
    },
    // srun sets PMI_RANK too, but not the local variables. Its own come last, because mpirun may run inside its step.
    Names {
        rank: "PMI_RANK",
        world_size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_world_size: "MPI_LOCALNRANKS",
        launcher: "MPICH's mpirun",
    },
    // SLURM_NTASKS is set in batch scripts, too.
    Names {
        rank: "SLURM_PROCID",
        world_size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_world_size: "SLURM_STEP_TASKS_PER_NODE",
        launcher: "srun",
    },
];

/// The names under which this process's launcher has set them.
fn launcher(get: &impl Fn(&str) -> Option<String>) -> Result<Option<&'static Names>> {
    if get(TORCHRUN.rank).is_some() {
        return Ok(Some(&TORCHRUN));
    }
    let is_set = |name| get(name).is_some();
    let ranks = |o: &&Names| is_set(o.rank) && is_set(o.world_size);
    let with_local = OTHERS.iter().find(|o| ranks(o) && is_set(o.local_rank));
    let other = with_local.or_else(|| OTHERS.iter().find(ranks));
    let torchruns = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
    match torchruns.into_iter().find(|name| get(name).is_some()) {
        Some(set) if other.is_none() => Err(missing("RANK", set, "this process's number, from 0")),
        _ => Ok(other),
    }
}

/// The number of processes on this host. SLURM writes "2(x3),1" for two on each of three hosts and one on a fourth;
/// others write only this host's number.
fn tasks_on(node: usize, list: &str) -> Option<usize> {
    let on_hosts = list.split(',').flat_map(|part| {
        let (count, hosts) = part.trim_end_matches(')').split_once("(x").unwrap_or((part, "1"));
        repeat_n(count.parse(), hosts.parse().unwrap_or(1))
    });
    let counts: Vec<usize> = on_hosts.flatten().collect();
    counts.get(node).or(counts.first()).copied()
}

fn number(
    get: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    meaning: &str,
) -> Result<Option<usize>> {
    let Some(value) = get(name) else { return Ok(None) };
    let expected = || format!("{meaning}, as a whole number");
    value.parse().map(Some).map_err(|_| wrong(name, format!("is {value:?}"), expected()))
}

pub(super) fn wrong(name: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
    Error::Environment { variable: name.into(), found: found.into(), expected: expected.into() }
}

fn missing(name: &str, because: &str, meaning: &str) -> Error {
    let launcher = OTHERS.iter().find(|it| it.rank == because).unwrap_or(&TORCHRUN).launcher;
    let expected = format!(
        "{meaning}: start the program with {launcher}, or set RANK, WORLD_SIZE, MASTER_ADDR \
         and MASTER_PORT, or none of them for a single process"
    );
    wrong(name, format!("is not set while {because} is"), expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What variables say that are written as in a shell: `RANK=0 WORLD_SIZE=2`.
    fn read(variables: &str) -> Result<Option<Env>> {
        let variables = variables.split_whitespace().map(|it| it.split_once('=').unwrap());
        Env::from_variables(|name| {
            variables.clone().find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        })
    }

    fn message(variables: &str) -> String {
        read(variables).unwrap_err().to_string()
    }

    #[test]
    fn without_a_launcher_and_in_a_batch_script_of_slurm_a_process_is_alone() {
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("SLURM_PROCID=0 SLURM_NTASKS=4").unwrap(), None);
        let srun = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1";
        assert_eq!(read(srun).unwrap(), None);
    }

    #[test]
    fn a_launchers_variables_are_read_and_mpiruns_within_a_step_of_slurm() {
        let torchrun = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=1234 \
                        TORCHELASTIC_USE_AGENT_STORE=True";
        let open_mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
                        OMPI_COMM_WORLD_LOCAL_SIZE=2";
        let both = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1 \
                    PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=4";
        for (variables, ranks, local, master, agent_store) in [
            (torchrun, (3, 4), (1, 2), ("10.0.0.1", 1234), true),
            (open_mpi, (1, 2), (1, 2), ("127.0.0.1", 29500), false),
            (both, (2, 4), (2, 4), ("127.0.0.1", 29500), false),
            ("PMI_RANK=1 PMI_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", (1, 2), (1, 2), ("h", 1), false),
        ] {
            let env = read(variables).unwrap().unwrap();
            assert_eq!((env.rank, env.world_size), ranks);
            assert_eq!((env.local_rank, env.local_world_size), local);
            assert_eq!((env.master_addr.as_str(), env.master_port), master);
            assert_eq!(env.agent_store, agent_store);
        }
    }

    #[test]
    fn sruns_variables_over_two_hosts_need_a_master() {
        let srun =
            "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2(x2)";
        insta::assert_snapshot!(message(srun), @"environment variable MASTER_ADDR is not set while SLURM_PROCID is; expected the host of rank 0: start the program with srun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or none of them for a single process");
    }

    #[test]
    fn srun_may_put_different_numbers_of_ranks_on_hosts() {
        let local_world_size = |node| {
            let srun = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=7 SLURM_STEP_TASKS_PER_NODE=2(x3),1";
            let env = read(&format!("{srun} SLURM_NODEID={node} MASTER_ADDR=h MASTER_PORT=1"));
            env.unwrap().unwrap().local_world_size
        };
        assert_eq!([0, 2, 3].map(local_world_size), [2, 2, 1]);
    }

    #[test]
    fn a_half_set_environment_names_what_is_missing() {
        for (set, missing) in [
            ("RANK=0", "WORLD_SIZE is not set while RANK is"),
            ("WORLD_SIZE=2", "RANK is not set while WORLD_SIZE is"),
            ("MASTER_ADDR=h", "RANK is not set while MASTER_ADDR is"),
            ("RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set while RANK is"),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT is not set while RANK is"),
        ] {
            let text = message(set);
            assert!(text.contains(missing), "{set}: {text}");
        }
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        insta::assert_snapshot!(message("RANK=2 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1"), @r#"environment variable RANK is "2"; expected a rank below WORLD_SIZE, which is 2"#);
        insta::assert_snapshot!(message("RANK=0 WORLD_SIZE=0 MASTER_ADDR=h MASTER_PORT=1"), @r#"environment variable WORLD_SIZE is "0"; expected at least 1 process"#);
        insta::assert_snapshot!(message("RANK=-1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1"), @r#"environment variable RANK is "-1"; expected this process's number, from 0, as a whole number"#);
        insta::assert_snapshot!(message("RANK=0 WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=70000"), @r#"environment variable MASTER_PORT is "70000"; expected a port from 1 to 65535"#);
    }
}
