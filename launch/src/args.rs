//! The command line: torchrun's flags, under torchrun's names and `PET_` variables.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use clap::builder::FalseyValueParser;

use crate::nproc::parse_nproc;
use crate::rendezvous::{Endpoint, parse_backend};
use crate::streams::{StreamChoice, Streams};

/// torchrun's port when none is given.
const DEFAULT_PORT: u16 = 29500;

/// Start the ranks of a distributed job on this machine, as torchrun does, for any program.
#[derive(Debug, Parser)]
#[command(
    version,
    override_usage = "launch [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "\
Examples:
  launch -n 2 ./my-trainer --epochs 3                                       two ranks on this machine
  launch --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 -n 4 ./my-trainer  the first of two machines
  launch -n 2 --max-restarts 3 ./my-trainer                                 a failed job starts again
  launch -n 2 python3 train.py                                              two ranks in Python

Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT
and torchrun's other variables; OMP_NUM_THREADS=1 when several ranks share the machine and it is
unset.

On one node, without a port among the flags, launch reserves a free one, which rank 0 then opens,
whatever language it is in: so two jobs never meet on one port.

The first rank that fails ends the job: the others have 1 s to end by themselves, then SIGTERM, and
SIGKILL 3 s later. launch ends with that rank's exit code, or 128 plus the number of the signal that
killed it. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to the ranks; a second SIGINT kills
them at once.

With --max-restarts on several nodes, the launch of each node counts for itself.

Of torchrun's flags those of elastic jobs are missing (--nnodes MIN:MAX, --rdzv-backend c10d and
etcd, --rdzv-conf), and --monitor-interval: launch learns at once that a rank has ended. What is
Python's is written out: python3 train.py for train.py, python3 -m MODULE for -m MODULE."
)]
pub(crate) struct Args {
    /// Ranks on this node: a number, `gpu` (one per GPU), `cpu` (one per core), or `auto` (the GPUs
    /// if there are any, else the cores)
    #[arg(
        short = 'n',
        long,
        alias = "nproc_per_node",
        env = "PET_NPROC_PER_NODE",
        default_value = "1",
        value_parser = parse_nproc,
        value_name = "N"
    )]
    pub(crate) nproc_per_node: u16,

    /// Nodes in the job; each runs its own launch
    #[arg(long, env = "PET_NNODES", default_value = "1", value_parser = parse_nnodes, value_name = "N")]
    pub(crate) nnodes: u16,

    /// Which of the nodes this is, from 0
    #[arg(long, alias = "node_rank", env = "PET_NODE_RANK", default_value_t = 0, value_name = "K")]
    pub(crate) node_rank: u16,

    /// Address of node 0, where rank 0 listens [default: 127.0.0.1; required with several nodes]
    #[arg(long, alias = "master_addr", env = "PET_MASTER_ADDR", value_name = "HOST")]
    pub(crate) master_addr: Option<String>,

    /// Port on which rank 0 listens [default: a free port on one node, 29500 with several]
    #[arg(
        long,
        alias = "master_port",
        env = "PET_MASTER_PORT",
        value_parser = clap::value_parser!(u16).range(1..),
        value_name = "PORT"
    )]
    pub(crate) master_port: Option<u16>,

    /// --master-addr and --master-port in one, as with torchrun's static rendezvous
    #[arg(
        long,
        alias = "rdzv_endpoint",
        env = "PET_RDZV_ENDPOINT",
        conflicts_with_all = ["master_addr", "master_port", "standalone"],
        value_name = "HOST:PORT"
    )]
    pub(crate) rdzv_endpoint: Option<Endpoint>,

    /// Accepted for torchrun's sake: `static`, its default, is the only one here
    #[arg(
        long,
        alias = "rdzv_backend",
        env = "PET_RDZV_BACKEND",
        default_value = "static",
        value_parser = parse_backend,
        value_name = "NAME"
    )]
    pub(crate) rdzv_backend: String,

    /// One node and a free port, which is the default here
    #[arg(
        long,
        env = "PET_STANDALONE",
        value_parser = FalseyValueParser::new(),
        conflicts_with = "master_port"
    )]
    pub(crate) standalone: bool,

    /// How often the ranks are started again, all of them, after one has failed
    #[arg(
        long,
        alias = "max_restarts",
        env = "PET_MAX_RESTARTS",
        default_value_t = 0,
        value_name = "N"
    )]
    pub(crate) max_restarts: u32,

    /// Name of the job: TORCHELASTIC_RUN_ID, and how the directory of its logs begins
    #[arg(long, alias = "rdzv_id", env = "PET_RDZV_ID", default_value = "none", value_name = "ID")]
    pub(crate) rdzv_id: String,

    /// ROLE_NAME of the ranks; the same on every node, since ROLE_RANK counts through all of them
    #[arg(long, env = "PET_ROLE", default_value = "default", value_name = "NAME")]
    pub(crate) role: String,

    /// Keep the output under DIR/<id>_*/attempt_<n>/<local rank>/{stdout,stderr}.log; alone it means
    /// `--tee 3`
    #[arg(long, alias = "log_dir", env = "PET_LOG_DIR", value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,

    /// Streams that go to files and, each line behind `[rank0]:`, to the console: 0 none, 1 stdout,
    /// 2 stderr, 3 both, or by local rank, as in `0:1,1:2`
    #[arg(short, long, env = "PET_TEE", default_value = "0", value_name = "STREAMS")]
    pub(crate) tee: StreamChoice,

    /// Streams that go to files only: as for --tee, which wins
    #[arg(short, long, env = "PET_REDIRECTS", default_value = "0", value_name = "STREAMS")]
    pub(crate) redirects: StreamChoice,

    /// Local ranks whose output the console shows, as in `0,2` [default: all]; the files of --tee
    /// and --redirects are written for every rank
    #[arg(
        long,
        alias = "local_ranks_filter",
        env = "PET_LOCAL_RANKS_FILTER",
        value_delimiter = ',',
        value_name = "RANKS"
    )]
    pub(crate) local_ranks_filter: Vec<u16>,

    /// Accepted for torchrun's sake: launch runs every program as it is
    #[arg(
        long,
        alias = "no_python",
        env = "PET_NO_PYTHON",
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) no_python: bool,

    /// The program and its arguments; what follows PROGRAM is passed on as it stands
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub(crate) command: Vec<OsString>,
}

impl Args {
    /// Refuses what no single flag can see.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.node_rank < self.nnodes,
            "--node-rank {} is not in a job of {} node{}: nodes count from 0",
            self.node_rank,
            self.nnodes,
            if self.nnodes == 1 { "" } else { "s" }
        );
        if self.nnodes > 1 {
            ensure!(
                !self.standalone,
                "--standalone is for one node, but --nnodes is {}",
                self.nnodes
            );
            ensure!(
                self.master_addr.is_some() || self.rdzv_endpoint.is_some(),
                "--nnodes {} needs --master-addr, the address of node 0 as every node reaches it",
                self.nnodes
            );
        }
        for (flag, highest_rank) in [
            ("--tee", self.tee.highest_rank()),
            ("--redirects", self.redirects.highest_rank()),
            ("--local-ranks-filter", self.local_ranks_filter.iter().max().copied()),
        ] {
            if let Some(rank) = highest_rank.filter(|rank| *rank >= self.nproc_per_node) {
                bail!(
                    "{flag} names local rank {rank}, but this node has the ranks 0 to {}",
                    self.nproc_per_node - 1
                );
            }
        }
        Ok(())
    }

    /// WORLD_SIZE.
    pub(crate) fn world_size(&self) -> u32 {
        u32::from(self.nnodes) * u32::from(self.nproc_per_node)
    }

    /// RANK of a local rank: nodes hold consecutive ranks.
    pub(crate) fn rank(&self, local_rank: u16) -> u32 {
        u32::from(self.node_rank) * u32::from(self.nproc_per_node) + u32::from(local_rank)
    }

    /// The streams of a rank that go to the console and to files.
    pub(crate) fn tee(&self, local_rank: u16) -> Streams {
        let files = self.tee.any() || self.redirects.any();
        if self.log_dir.is_some() && !files { Streams::BOTH } else { self.tee.of(local_rank) }
    }

    /// Whether the console shows the output of a rank.
    pub(crate) fn on_console(&self, local_rank: u16) -> bool {
        self.local_ranks_filter.is_empty() || self.local_ranks_filter.contains(&local_rank)
    }

    /// MASTER_ADDR.
    pub(crate) fn master_addr(&self) -> &str {
        let endpoint = self.rdzv_endpoint.as_ref().map(|endpoint| endpoint.host.as_str());
        endpoint.or(self.master_addr.as_deref()).unwrap_or("127.0.0.1")
    }

    /// The port on which every node expects rank 0; `None` where launch chooses a free one.
    pub(crate) fn fixed_port(&self) -> Option<u16> {
        match self.rdzv_endpoint.as_ref().map(|endpoint| endpoint.port).or(self.master_port) {
            None if self.nnodes > 1 => Some(DEFAULT_PORT),
            port => port,
        }
    }
}

/// torchrun's `--nnodes` also takes `MIN:MAX`; a job here has one size.
fn parse_nnodes(text: &str) -> Result<u16> {
    let (min, max) = text.split_once(':').unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        (Ok(0), _) | (_, Ok(0)) => bail!("the world size would be 0: give at least one node"),
        (Ok(min), Ok(max)) if min == max => Ok(min),
        (Ok::<u16, _>(_), Ok::<u16, _>(_)) => {
            bail!("an elastic job is not supported: give one number of nodes")
        }
        _ => bail!("expected a number of nodes, as in --nnodes 2"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Args {
        Args::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn torchrun_spellings_are_accepted() {
        let args = parse(
            "launch --nproc_per_node=2 --nnodes=2:2 --node_rank 1 --master_addr a --no-python x",
        );
        assert_eq!((args.nproc_per_node, args.nnodes, args.node_rank), (2, 2, 1));
        assert_eq!((args.rank(1), args.world_size()), (3, 4));
    }

    #[test]
    fn what_follows_the_program_is_not_ours() {
        let args = parse("launch -n 2 cargo run -n 3 -- --tee --help");
        assert_eq!(args.command, ["cargo", "run", "-n", "3", "--", "--tee", "--help"]);
        let args = parse("launch -- prog -- -x");
        assert_eq!(args.command, ["prog", "--", "-x"]);
    }

    #[test]
    fn a_mistyped_flag_is_not_taken_for_the_program() {
        assert!(Args::try_parse_from(["launch", "--nproc", "2", "prog"]).is_err());
    }

    #[test]
    fn the_port_is_free_choice_on_one_node_and_fixed_on_several() {
        assert_eq!(parse("launch x").fixed_port(), None);
        assert_eq!(parse("launch --master-port 4000 x").fixed_port(), Some(4000));
        assert_eq!(parse("launch --nnodes 2 --master-addr a x").fixed_port(), Some(29500));
        assert_eq!(parse("launch --rdzv-endpoint a:4000 x").fixed_port(), Some(4000));
    }
}
