//! Synchronous and asynchronous updates, after bobondemon's "Distributed Data Parallel and Its Pytorch Example".
//!
//! ```text
//! cargo launch -n 4 async-update -- sync-allreduce      the mean of all gradients, as DDP takes it
//! cargo launch -n 4 async-update -- ring                the same, chunk by chunk around a ring
//! cargo launch -n 5 async-update -- async-ps            a server and four workers that wait for nobody
//! cargo run -rq -p async-update -- ring show            where the chunks are after each iteration
//! cargo launch -n 4 async-update -- cost                what a message costs, and so an update
//! cargo run --release -p async-update -- hogwild        threads, without a lock
//! cargo run --release -p async-update -- trace case1    the article's first asynchronous story
//! cargo run --release -p async-update -- quadratic      what theory says of its guesses
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod command;
mod events;
mod exhibits;
mod link;
mod methods;
mod model;
mod ring;
mod server;
mod training;

use anyhow::Result;
use command::{Args, Command, RingArgs};
use link::Link;
use methods::{AsyncPs, Easgd, HOGWILD, Ring, SyncAllReduce, SyncPs, hogwild, local_sgd};
use report::exit;
use server::{Gate, Rule, Service};
use training::{asynchronous, synchronous};

fn main() {
    exit(|| run(&report::parse::<Args>(&[], &[("hogwild", HOGWILD)]).command))
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::SyncAllreduce(args) => synchronous("sync-allreduce", args, |group, steps| {
            Ok((SyncAllReduce { group, lr: args.lr }, steps))
        }),
        Command::SyncPs(args) => synchronous("sync-ps", args, |group, steps| {
            Ok((SyncPs { link: Link::between_ranks(group)?, lr: args.lr }, steps))
        }),
        Command::Ring(RingArgs { exhibit: None, train: args }) => {
            synchronous("ring", args, |group, steps| {
                Ok((Ring { link: Link::between_ranks(group)?, lr: args.lr }, steps))
            })
        }
        Command::LocalSgd(args) => local_sgd("local-sgd", args, 0, None),
        Command::PostLocal(args) => local_sgd("post-local", &args.local, args.start, None),
        Command::Diloco(args) => local_sgd("diloco", &args.local, 0, Some(args)),
        Command::AsyncPs(args) => {
            let lr = args.server.train.lr;
            let rule = Rule::Gradient { lr, staleness_aware: args.staleness_aware };
            let gate = args.sync_every.map_or(Gate::Free, Gate::Every);
            asynchronous(Service { name: "async-ps", rule, gate }, &args.server, |shards| {
                AsyncPs::new(shards, lr, args.n_fetch, args.n_push)
            })
        }
        Command::Ssp(args) => {
            let lr = args.server.train.lr;
            let rule = Rule::Gradient { lr, staleness_aware: false };
            let gate = Gate::Stale(args.staleness as usize);
            asynchronous(Service { name: "ssp", rule, gate }, &args.server, |shards| {
                AsyncPs::new(shards, lr, 1, 1)
            })
        }
        Command::Easgd(args) => {
            let (lr, tau) = (args.server.train.lr, args.tau);
            let rule = Rule::Elastic { alpha: args.alpha()? };
            let service = Service { name: "easgd", rule, gate: Gate::Free };
            asynchronous(service, &args.server, |shards| Easgd { shards, lr, tau, batches: 0 })
        }
        Command::Hogwild(args) => hogwild(args),
        Command::Ring(RingArgs { exhibit: Some(exhibit), .. }) => exhibit.run(),
        Command::Exhibit(exhibit) => exhibit.run(),
    }
}
