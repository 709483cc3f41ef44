//! Starts the ranks of this node, generation after generation.

use crate::elastic::{self, Said};
use crate::error_file::{self, Clock};
use crate::guard::{self, Guard};
use crate::output::{Logs, Routes};
use crate::prelude::*;
use crate::rank::{self, Rank};
use crate::signals;
use tch_parallel_contract::ELASTIC;

pub(crate) enum Event {
    /// The process of a rank has ended.
    RankEnded { local_rank: u16, at: Instant },
    /// A rank that was started in this generation says something of its place.
    Elastic { local_rank: u16, started_in: u32, said: Said },
    /// The launcher was asked to end.
    Signal(Signal),
    /// This node has joined a job of several nodes, whose coordinator may be this launcher's own.
    Joined { link: Outgoing, is_own: bool },
    /// The coordinator says something, or is gone: then it is an `End`.
    Told(ToAgent),
}

pub(crate) fn post(events: &Sender<Event>, event: Event) {
    // Fails only when the launcher is about to end anyway.
    let _ = events.send(event);
}

/// Runs the ranks of this node. It must stay on the main thread: the kernel sends the parent-death signal when the
/// thread that started a rank ends, not the process.
pub(crate) struct Supervisor<'a> {
    pub(crate) args: &'a Args,
    logs: Option<Logs>,
    /// For the files of the ranks that have failed, and for their sockets.
    directory: Option<PathBuf>,
    guard: Rc<Guard>,
    /// Where other threads report events.
    pub(crate) sender: Sender<Event>,
    events: Receiver<Event>,
}

impl<'a> Supervisor<'a> {
    /// Prepares what all attempts share. Starts no rank yet.
    pub(crate) fn new(args: &'a Args) -> Result<Self> {
        let logs = Logs::create(args)?;
        let (sender, events) = channel();
        let signal_sender = sender.clone();
        signals::listen(move |signal| post(&signal_sender, Event::Signal(signal)))?;
        let directory = error_file::directory();
        let guard = Rc::new(Guard::start(directory.as_deref())?);
        Ok(Supervisor { args, logs, directory, guard, sender, events })
    }

    pub(crate) fn start(&self, placement: &Placement, master_port: u16) -> Result<Vec<Rank>> {
        let (ranks, clock) = (0..self.args.nproc_per_node, Clock::default());
        ranks.map(|rank| self.start_rank(placement, rank, master_port, &clock)).collect()
    }

    pub(crate) fn start_rank(
        &self,
        placement: &Placement,
        local_rank: u16,
        port: u16,
        clock: &Clock,
    ) -> Result<Rank> {
        let mut command = guard::rank_command(&self.args.command);
        if self.args.pass_local_rank {
            // After all other arguments: the program may be an interpreter, whose script comes next.
            command.arg(format!("--local_rank={local_rank}"));
        }
        let place = (local_rank, self.args.nproc_per_node);
        rank::set_common_variables(&mut command, self.args);
        command.envs(rank::variables(self.args, placement, local_rank, place, port));
        let rank = placement.rank(local_rank);
        let generation = placement.generation;
        let goes_on = self.args.max_restarts > 0 || self.args.nnodes.elastic();
        let own = |kind| {
            self.directory.as_ref().map(|it| it.join(format!("{generation}.{local_rank}.{kind}")))
        };
        let socket = own("socket").filter(|_| goes_on);
        let sender = self.sender.clone();
        let started_in = generation;
        let hear = move |said| post(&sender, Event::Elastic { local_rank, started_in, said });
        let socket = socket.filter(|socket| {
            // It fails on a full disk, or because the path of a socket must be short.
            let heard = elastic::listen(socket, hear);
            // Once for all ranks.
            if let (Err(error), 0) = (&heard, local_rank) {
                let place = socket.display();
                say(format_args!(
                    "cannot listen on {place}: {error:#}; all ranks start again after a loss"
                ));
            }
            heard.is_ok()
        });
        command.envs(socket.iter().map(|socket| (ELASTIC, socket)));
        let routes = Routes::new(self.args, self.logs.as_ref(), generation, local_rank, rank)?;
        let sender = self.sender.clone();
        let on_end = move |at| {
            post(&sender, Event::RankEnded { local_rank, at });
            socket.iter().for_each(|socket| elastic::stop(socket));
        };
        let error_file = own("json").map(|path| (path, clock.clone()));
        Rank::start((rank, generation), command, error_file, routes, &self.guard, on_end)
    }

    /// The next event; `None` if the deadline passes first.
    pub(crate) fn next_event(&self, deadline: Option<Instant>) -> Option<Event> {
        // As this keeps a sender, the channel is never closed.
        let Some(end) = deadline else { return self.events.recv().ok() };
        self.events.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
    }
}
