//! The command line: torchrun's flags, with torchrun's names, spellings and variables.

mod nodes;
mod nproc;
mod rendezvous;
mod streams;

use anyhow::{Result, bail, ensure};
use clap::builder::FalseyValueParser;
use clap::{CommandFactory, FromArgMatches, Parser};
pub(crate) use nodes::Nodes;
use nproc::parse_nproc;
use rendezvous::{Backend, Conf, Endpoint};
use std::{ffi::OsString, path::PathBuf};
use streams::{StreamChoice, Streams};

/// Start the ranks of a distributed job on this machine, as torchrun does. Runs any program.
#[derive(Debug, Parser)]
#[command(
    name = "launch",
    version,
    override_usage = "launch [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = include_str!("args/help.txt")
)]
pub(crate) struct Args {
    /// Number of ranks on this node: an integer, `gpu` (one per GPU), `cpu` (one per core), or `auto`
    /// (like `gpu` if there is a GPU, else like `cpu`)
    #[arg(short = 'n', long, default_value = "1", value_parser = parse_nproc, value_name = "N")]
    pub(crate) nproc_per_node: u16,
    /// Number of nodes, or MIN:MAX for an elastic job; run launch once on each
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) nnodes: Nodes,
    /// Rank of this node, from 0; ignored with `--rdzv-backend c10d`
    #[arg(long, default_value_t = 0, value_name = "K")]
    pub(crate) node_rank: u16,

    /// Address of node 0, which every node can reach [default: 127.0.0.1; required with several nodes]
    #[arg(long, value_name = "HOST")]
    pub(crate) master_addr: Option<String>,
    /// Port on which rank 0 listens [default: a free one]; with several nodes, the port where the
    /// launchers meet [default: 29500]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "PORT")]
    pub(crate) master_port: Option<u16>,
    /// Set --master-addr and --master-port in one [default port: a free one; with several nodes
    /// 29500, or 29400 with c10d]
    #[arg(
        long,
        conflicts_with_all = ["master_addr", "master_port", "standalone"],
        value_name = "HOST[:PORT]"
    )]
    pub(crate) rdzv_endpoint: Option<Endpoint>,
    /// How the nodes are numbered
    #[arg(long, default_value = "static", value_name = "NAME")]
    pub(crate) rdzv_backend: Backend,
    /// How the nodes meet: join_timeout=SECONDS (wait for each other, 600), last_call_timeout=SECONDS
    /// (wait for more than MIN nodes, 30), is_host=0|1 (this node is node 0), check_program=0|1 (all
    /// nodes must have the same program, 1)
    #[arg(long, default_value = "", hide_default_value = true, value_name = "KEY=VALUE,...")]
    pub(crate) rdzv_conf: Conf,
    /// Seconds of silence after which a node counts as lost
    #[arg(
        long,
        default_value_t = 15,
        value_parser = clap::value_parser!(u64).range(1..=86400),
        value_name = "SECONDS"
    )]
    pub(crate) heartbeat_timeout: u64,
    /// Use one node and a free port; this is already the default
    #[arg(long, value_parser = FalseyValueParser::new(), conflicts_with = "master_port")]
    pub(crate) standalone: bool,

    /// Maximum number of restarts: after a failure, all ranks start again, or only the failed one if all are in
    /// elastic::run
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) max_restarts: u32,
    /// Job ID, the same on every node: the value of TORCHELASTIC_RUN_ID, and the prefix of the log directory
    #[arg(long, default_value = "none", value_name = "ID")]
    pub(crate) rdzv_id: String,
    /// Role of the ranks (ROLE_NAME); ROLE_RANK counts the ranks of the same role
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(crate) role: String,

    /// Write log files to DIR/<id>_*/attempt_<n>/<local rank>/{stdout,stderr}.log; implies `--tee 3`
    /// unless --tee or --redirects is given
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
    /// Write these streams to log files and, with the prefix `[rank0]:`, to the console: 0 none,
    /// 1 stdout, 2 stderr, 3 both, or per local rank, as in `0:1,1:2`
    #[arg(short, long, default_value = "0", value_name = "STREAMS")]
    pub(crate) tee: StreamChoice,
    /// Write these streams to log files only; same format as --tee, which takes precedence
    #[arg(short, long, default_value = "0", value_name = "STREAMS")]
    pub(crate) redirects: StreamChoice,
    /// Show only the output of these local ranks on the console, as in `0,2` [default: all]; log
    /// files are written for every rank
    #[arg(long, value_delimiter = ',', value_name = "RANKS")]
    pub(crate) local_ranks_filter: Vec<u16>,

    /// Accepted for compatibility with torchrun; launch never adds `python`
    #[arg(long, value_parser = FalseyValueParser::new())]
    pub(crate) no_python: bool,
    /// Accepted for compatibility with torch.distributed.launch; LOCAL_RANK is always set
    #[arg(long)]
    pub(crate) use_env: bool,
    /// Append --local_rank=N to each rank's arguments, for scripts that parse it;
    /// torch.distributed.launch did so before PyTorch 2.0
    #[arg(long, conflicts_with = "use_env")]
    pub(crate) pass_local_rank: bool,

    /// The program and its arguments; everything after PROGRAM is passed on unchanged
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub(crate) command: Vec<OsString>,
}

/// Flags of torch.distributed.launch, which have no variables.
const OLDER: [&str; 2] = ["use_env", "pass_local_rank"];

/// As torchrun's, each flag may be spelled with underscores, and its default be set by a variable.
fn command() -> clap::Command {
    Args::command().mut_args(|arg| {
        let Some(flag) = arg.get_long().map(|flag| flag.replace('-', "_")) else { return arg };
        // Once in a process.
        let flag: &str = flag.leak();
        let arg = if flag.contains('_') { arg.alias(flag) } else { arg };
        if OLDER.contains(&flag) {
            return arg;
        }
        let variable: &str = format!("PET_{}", flag.to_uppercase()).leak();
        arg.env(variable)
    })
}

impl Args {
    pub(crate) fn read<W: Into<OsString> + Clone>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Self, clap::Error> {
        Args::from_arg_matches(&command().try_get_matches_from(words)?)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let Args { nnodes: nodes, node_rank, .. } = self;
        match self.rdzv_backend {
            Backend::Static => {
                ensure!(
                    !nodes.elastic(),
                    "--nnodes {nodes} makes the job elastic, which requires --rdzv-backend c10d"
                );
                ensure!(
                    *node_rank < nodes.max,
                    "--node-rank {node_rank} is out of range for {nodes} node{}: node ranks start at 0",
                    if nodes.max == 1 { "" } else { "s" }
                );
            }
            Backend::C10d => ensure!(
                self.master_addr.is_none() && self.master_port.is_none(),
                "--master-addr and --master-port are for --rdzv-backend static: c10d takes \
                 --rdzv-endpoint HOST:PORT"
            ),
        }
        if self.several_nodes() {
            ensure!(!self.standalone, "--standalone is for one node, but --nnodes is {nodes}");
            ensure!(
                self.master_addr.is_some() || self.rdzv_endpoint.is_some(),
                "--nnodes {nodes} requires {}, an address of node 0 that every node can reach",
                match self.rdzv_backend {
                    Backend::Static => "--master-addr",
                    Backend::C10d => "--rdzv-endpoint",
                }
            );
            ensure!(
                self.rdzv_endpoint.as_ref().is_none_or(|endpoint| endpoint.port != Some(0)),
                "--rdzv-endpoint has port 0, a free one, but {nodes} nodes meet on a port that all know"
            );
        }
        for (flag, highest_rank) in [
            ("--tee", self.tee.highest_rank()),
            ("--redirects", self.redirects.highest_rank()),
            ("--local-ranks-filter", self.local_ranks_filter.iter().max().copied()),
        ] {
            if let Some(rank) = highest_rank.filter(|rank| *rank >= self.nproc_per_node) {
                bail!(
                    "{flag} names local rank {rank}, but this node has local ranks 0 to {}",
                    self.nproc_per_node - 1
                );
            }
        }
        Ok(())
    }

    pub(crate) fn several_nodes(&self) -> bool {
        self.nnodes.max > 1
    }

    /// This node's rank, unless nodes are numbered by arrival.
    pub(crate) fn fixed_node_rank(&self) -> Option<u16> {
        (self.rdzv_backend == Backend::Static).then_some(self.node_rank)
    }

    /// The streams of a rank that go both to the console and to log files.
    pub(crate) fn tee(&self, local_rank: u16) -> Streams {
        let files = self.tee.any() || self.redirects.any();
        if self.log_dir.is_some() && !files { Streams::BOTH } else { self.tee.of(local_rank) }
    }

    pub(crate) fn master_addr(&self) -> &str {
        let endpoint = self.rdzv_endpoint.as_ref().map(|endpoint| endpoint.host.as_str());
        // torchrun requires an IPv6 address in brackets.
        let master_addr = self.master_addr.as_deref().map(|addr| addr.trim_matches(['[', ']']));
        endpoint.or(master_addr).unwrap_or("127.0.0.1")
    }

    /// On one node, the port on which rank 0 listens; `None` if launch chooses a free one.
    pub(crate) fn fixed_port(&self) -> Option<u16> {
        let port = self.rdzv_endpoint.as_ref().map_or(self.master_port, |endpoint| endpoint.port);
        port.filter(|port| *port != 0)
    }

    /// On several nodes, the port on which the launcher of node 0 listens.
    pub(crate) fn meeting_port(&self) -> u16 {
        self.fixed_port().unwrap_or(match self.rdzv_backend {
            // As torchrun's.
            Backend::Static => 29500,
            Backend::C10d => 29400,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Args {
        Args::read(line.split(' ')).unwrap()
    }

    #[test]
    fn torchrun_spellings_are_accepted() {
        let args = parse(
            "launch --nproc_per_node=2 --nnodes=2:2 --node_rank 1 --master_addr [::1] --no-python x",
        );
        assert_eq!(args.master_addr(), "::1");
        let nodes = Nodes { min: 2, max: 2 };
        assert_eq!((args.nproc_per_node, args.nnodes, args.node_rank), (2, nodes, 1));
        for ranks in ["cpu", "auto"] {
            assert!(parse(&format!("launch -n {ranks} x")).nproc_per_node >= 1);
        }
    }

    #[test]
    fn every_flag_but_those_of_the_older_launcher_has_a_variable() {
        let command = command();
        let variable = |flag: &str| {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
            arg.get_env().and_then(|name| name.to_str()).map(str::to_owned)
        };
        assert_eq!(variable("rdzv-endpoint").as_deref(), Some("PET_RDZV_ENDPOINT"));
        assert_eq!(variable("tee").as_deref(), Some("PET_TEE"));
        assert_eq!(variable("use-env"), None);
    }

    #[test]
    fn one_node_gets_a_free_port_and_several_meet_on_a_fixed_one() {
        assert_eq!(parse("launch x").fixed_port(), None);
        assert_eq!(parse("launch --master-port 4000 x").fixed_port(), Some(4000));
        let two = "launch --nnodes 2";
        for (flags, port) in [
            ("--master-addr a", 29500),
            ("--master-addr a --master-port 4000", 4000),
            ("--rdzv-endpoint a:4000", 4000),
            ("--rdzv-endpoint a", 29500),
            ("--rdzv-backend c10d --rdzv-endpoint a", 29400),
            ("--rdzv-backend c10d --rdzv-endpoint a:4000", 4000),
        ] {
            assert_eq!(parse(&format!("{two} {flags} x")).meeting_port(), port, "{flags}");
        }
        assert_eq!(parse("launch --rdzv-endpoint a:0 x").fixed_port(), None);
        assert!(parse(&format!("{two} --rdzv-endpoint a:0 x")).check().is_err());
    }
}
