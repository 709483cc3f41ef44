//! A job whose ranks come and go: coordinator and seats are the real ones; processes, network and clock are simulated.
//!
//! | file | what it holds |
//! |---|---|
//! | `schedules` | the tests: random kills, delays and partitions, and what must hold after them |
//! | `launchers` | what the launchers do |
//! | `ranks` | what the ranks do |

mod launchers;
mod ranks;
mod schedules;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::*;
use crate::coordinator::perform;
use launchers::Node;
use rand::{Rng, SeedableRng, distr::uniform::SampleRange};
use rand::{rngs::StdRng, seq::IndexedRandom, seq::IteratorRandom};
use ranks::{Group, Pid, Process, Seated};

type Happening = Box<dyn FnOnce(&mut Simulation)>;

struct Simulation {
    random: StdRng,
    begin: Instant,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    count: u64,
    /// Milliseconds: the longest time of a message, and the time between two steps.
    delay: u64,
    pace: Range<u64>,
    /// When the last message on each connection arrives: none overtakes another.
    arrivals: BTreeMap<(NodeId, bool), u64>,
    messages: usize,
    job: Job,
    nodes: BTreeMap<NodeId, Node>,
    /// How many processes have ended too early by themselves, and which generations have failed without that.
    faults: usize,
    broken: BTreeSet<u32>,
    hosts: NodeId,
    lost: BTreeSet<NodeId>,
    processes: Vec<Process>,
    groups: BTreeMap<u32, Group>,
    /// The steps that all ranks of a generation have committed.
    safe: u64,
    /// The generation of the last step, and its time.
    last_step: (u32, u64),
    /// The number of steps after which the work is done.
    goal: u64,
    is_over: bool,
    has_succeeded: bool,
}

impl Simulation {
    /// The size of the job, its limit of restarts and all that happens depend on the seed alone.
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(1..=4);
        let (ranks, most) = (1 + (seed % 4) as u16, if seed.is_multiple_of(7) { 3 } else { 1000 });
        Self::of(count, ranks, most, random)
    }

    /// A job of so many nodes, which have joined.
    fn of(count: u16, ranks: u16, max_restarts: u32, mut random: StdRng) -> Self {
        let nodes = (1, count);
        let node = |id: u16| super::Node {
            ranks,
            max_restarts,
            ..super::Node::example(None, &format!("h{id}"), nodes)
        };
        let begin = Instant::now();
        let delay = *[2, 20, 200].choose(&mut random).unwrap();
        let mut it = Simulation {
            begin,
            now: 0,
            queue: BTreeMap::new(),
            count: 0,
            delay,
            pace: 50..150,
            arrivals: BTreeMap::new(),
            messages: 0,
            job: Job::new(terms(node(0), Duration::from_millis(1)), begin),
            nodes: BTreeMap::new(),
            faults: 0,
            broken: BTreeSet::new(),
            hosts: count.into(),
            lost: BTreeSet::new(),
            processes: Vec::new(),
            groups: BTreeMap::new(),
            safe: 0,
            last_step: (0, 0),
            goal: u64::MAX,
            is_over: false,
            has_succeeded: false,
            random,
        };
        (0..count).for_each(|id| it.coordinate(id.into(), Event::Joined(node(id))));
        it
    }

    fn at(&self, moment: u64) -> Instant {
        self.begin + Duration::from_millis(moment)
    }

    fn after(&mut self, milliseconds: u64, happening: impl FnOnce(&mut Simulation) + 'static) {
        self.count += 1;
        self.queue.insert((self.now + milliseconds, self.count), Box::new(happening));
    }

    /// Lets something happen after a random time.
    fn within(&mut self, wait: impl SampleRange<u64>, then: impl FnOnce(&mut Self) + 'static) {
        let wait = self.random.random_range(wait);
        self.after(wait, then);
    }

    /// Sends something between a node and the coordinator.
    fn send(&mut self, id: NodeId, to_agent: bool, then: impl FnOnce(&mut Simulation) + 'static) {
        self.messages += 1;
        let moment = self.now + self.random.random_range(0..=self.delay);
        let last = self.arrivals.entry((id, to_agent)).or_default();
        *last = moment.max(*last);
        let wait = *last - self.now;
        self.after(wait, then);
    }

    fn tell(&mut self, id: NodeId, message: ToCoordinator) {
        self.send(id, false, move |it| it.coordinate(id, Event::Said(message)));
    }

    fn coordinate(&mut self, id: NodeId, event: Event) {
        let actions = self.job.handle(id, event, self.at(self.now));
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        let tell = |id, message| self.send(id, true, move |it| it.agent(id, message));
        perform(actions, |_| Ok(1), tell).unwrap();
    }

    fn run(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds;
        loop {
            let due = self.job.due().map(|at| at.duration_since(self.begin).as_millis() as u64 + 1);
            let next = self.queue.first_key_value().map(|((moment, _), _)| *moment);
            let moment = due.unwrap_or(u64::MAX).min(next.unwrap_or(u64::MAX)).max(self.now);
            if moment > end {
                self.now = end;
                return;
            }
            self.now = moment;
            if due.is_some_and(|due| due <= moment) {
                let actions = self.job.pass_time(self.at(moment));
                self.perform(actions);
            }
            if next == Some(moment)
                && let Some((_, happening)) = self.queue.pop_first()
            {
                happening(self);
            }
        }
    }

    fn broken(&mut self, pid: Pid, generation: u32) {
        let Process { node, lives, .. } = self.processes[pid];
        self.broken.insert(generation);
        if lives && self.nodes.get(&node).is_some_and(|node| node.runs) {
            self.tell(node, ToCoordinator::Broken { generation });
        }
    }

    fn finished(&mut self, pid: Pid, generation: u32) {
        let local_rank = self.processes[pid].local_rank;
        if let Some(node) = self.watched(pid) {
            node.seats.finish(local_rank, generation);
            self.tell_if_finished(self.processes[pid].node);
        }
    }

    /// A rank is told that all have finished.
    fn may_leave(&mut self, pid: Pid) {
        let process = &self.processes[pid];
        assert!(process.has_finished || !process.lives, "a rank must leave its work");
        self.within(0..300, move |it| it.exit(pid));
    }

    fn exit(&mut self, pid: Pid) {
        if self.processes[pid].lives {
            self.processes[pid].ends_well = true;
            self.end(pid);
        }
    }

    fn exit_too_early(&mut self, pid: Pid) {
        self.faults += 1;
        self.exit(pid);
    }

    /// A rank cannot reach the others any more, which all run.
    fn cut_off(&mut self, pid: Pid) {
        self.leave(pid);
        self.next_place(pid);
    }

    fn lose_host(&mut self) {
        if let Some(id) = self.choose_host() {
            self.end_all(id);
            self.nodes.remove(&id);
            self.lost.insert(id);
            self.send(id, false, move |it| it.coordinate(id, Event::Lost(Loss::Closed)));
        }
    }

    fn stop_host(&mut self) {
        if let Some(id) = self.choose_host() {
            let reason = "its launcher was stopped".to_owned();
            self.tell(id, ToCoordinator::Stopped { reason, code: 143 });
            self.end_all(id);
            self.nodes.remove(&id);
            self.tell(id, ToCoordinator::Gone);
            self.lost.insert(id);
        }
    }

    fn join_host(&mut self) {
        let id = self.hosts;
        self.hosts += 1;
        let (host, launcher) = (format!("h{id}"), format!("h{id}"));
        let node = super::Node { host, launcher, ..self.job.terms.own.clone() };
        self.send(id, false, move |it| it.coordinate(id, Event::Joined(node)));
    }

    /// A connection is as if cut for a time.
    fn stall(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let id = *ids.choose(&mut self.random).unwrap();
        let until = self.now + self.random.random_range(100..10_000);
        let to_agent = self.random.random();
        let last = self.arrivals.entry((id, to_agent)).or_default();
        *last = until.max(*last);
    }

    /// Node 0 is not among them: the job ends with its launcher.
    fn choose_host(&mut self) -> Option<NodeId> {
        self.nodes.keys().copied().filter(|id| *id > 0).choose(&mut self.random)
    }

    /// Lets something happen to a rank that runs, if one does.
    fn to_one(happening: fn(&mut Simulation, Pid)) -> Happening {
        Box::new(move |it: &mut Simulation| {
            let lives = |pid: &Pid| it.processes[*pid].lives;
            let chosen = (0..it.processes.len()).filter(lives).choose(&mut it.random);
            chosen.into_iter().for_each(|pid| happening(it, pid));
        })
    }

    fn kill(&mut self, pid: Pid) {
        self.faults += 1;
        self.end(pid);
    }

    fn end(&mut self, pid: Pid) {
        if std::mem::take(&mut self.processes[pid].lives) {
            self.leave(pid);
            let node = self.processes[pid].node;
            self.within(1..=1 + self.delay, move |it| it.ended(node, pid));
        }
    }
}
