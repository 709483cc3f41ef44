//! Jobs whose ranks come and go, under random kills, delays and partitions: the coordinator, and the seats of every
//! node, with simulated processes, network and clock. A schedule is its seed.
//!
//! The processes do what `tch_parallel::elastic` does: they meet in a generation, bring each other up to the one that
//! has come furthest, take steps together, and leave for the next generation when an exchange fails or a place in it
//! has come. After the last step they meet once more, wait until all may leave, and end.

mod ranks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};

use super::*;
use crate::attempt::seats::Seats;
use ranks::{Group, JOIN, Pid, Process, Seated};

/// The schedules of the test. Each has its number as its seed.
const SCHEDULES: u64 = 10_000;

/// How long nothing is disturbed before the job must run again. The longest partition, a rank that waits in
/// vain, and a restart of all fit into it.
const QUIET: u64 = 60_000;

/// What happens at a moment.
enum Happening {
    Coordinator(NodeId, Event),
    Agent(NodeId, ToAgent),
    /// The launcher of this node has noticed the end of a process.
    Ended(NodeId, Pid),
    /// A rank says that it takes part.
    TakesPart(Pid),
    /// A rank says that its group has failed.
    Broken(Pid, u32),
    /// A rank says that it has done its work.
    Finished(Pid, u32),
    /// A rank is told that all have.
    MayLeave(Pid),
    /// A rank ends well, asked or not.
    Exits(Pid),
    /// A rank is told its place.
    Place(Pid, Seated),
    /// A rank comes to the exchange with this number in its generation.
    Arrives(Pid, u32, u64),
    /// An exchange ends for a rank.
    Exchanged(Pid, u32, u64),
    /// An exchange fails for a rank, because another is gone.
    Fails(Pid, u32),
    /// A rank has waited for the others of a generation since this time.
    Waits(Pid, u32, u64),
    /// A rank has looked for a place for so long.
    LooksInVain(Pid, u32, u32),
    Kill,
    ExitEarly,
    /// A rank cannot reach the others any more, which all run.
    Break,
    LoseHost,
    StopHost,
    JoinHost,
    Stall,
}

struct Node {
    seats: Seats,
    pids: Vec<Pid>,
    placement: Placement,
    /// Whether its ranks run and none has been told to end.
    runs: bool,
    is_settled: bool,
    failed: bool,
}

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
    /// How many were sent between nodes.
    messages: usize,
    job: Job,
    nodes: BTreeMap<NodeId, Node>,
    /// How many processes have ended by themselves before they should, and which generations have failed without that.
    faults: usize,
    broken: BTreeSet<u32>,
    /// How many there have been.
    hosts: NodeId,
    /// The hosts that are lost.
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
        let terms = Terms {
            own: node(0),
            heartbeat_timeout: Duration::from_secs(15),
            join_timeout: Duration::from_secs(600),
            last_call_timeout: Duration::from_millis(1),
            fixed_port: None,
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
            job: Job::new(terms, begin),
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
        for id in 0..count {
            it.coordinate(id.into(), Event::Joined(node(id)));
        }
        it
    }

    fn at(&self, moment: u64) -> Instant {
        self.begin + Duration::from_millis(moment)
    }

    fn after(&mut self, milliseconds: u64, happening: Happening) {
        self.count += 1;
        self.queue.insert((self.now + milliseconds, self.count), happening);
    }

    /// A short time, at random.
    fn soon(&mut self) -> u64 {
        self.random.random_range(0..=self.delay)
    }

    /// Sends something between a node and the coordinator.
    fn send(&mut self, id: NodeId, to_agent: bool, happening: Happening) {
        self.messages += 1;
        let moment = self.now + self.soon();
        let last = self.arrivals.entry((id, to_agent)).or_default();
        *last = moment.max(*last);
        let wait = *last - self.now;
        self.after(wait, happening);
    }

    fn tell(&mut self, id: NodeId, message: ToCoordinator) {
        self.send(id, false, Happening::Coordinator(id, Event::Said(message)));
    }

    fn coordinate(&mut self, id: NodeId, event: Event) {
        let actions = self.job.handle(id, event, self.at(self.now));
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Tell(id, message) => self.send(id, true, Happening::Agent(id, message)),
                Action::Start { placements, waits, .. } => {
                    for (id, placement) in placements {
                        let start = ToAgent::Start { placement, master_port: 1, waits };
                        self.send(id, true, Happening::Agent(id, start));
                    }
                }
                Action::Regroup { places, is_loss, reason, .. } => {
                    for (id, placement, claim) in places {
                        let reason = reason.clone();
                        let places =
                            ToAgent::Regroup { placement, master_port: 1, claim, is_loss, reason };
                        self.send(id, true, Happening::Agent(id, places));
                    }
                }
            }
        }
    }

    /// Runs for so long.
    fn run(&mut self, milliseconds: u64) {
        let end = self.now + milliseconds;
        loop {
            let due =
                self.job.due().map(|due| due.duration_since(self.begin).as_millis() as u64 + 1);
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
                self.happen(happening);
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Coordinator(id, event) => self.coordinate(id, event),
            Happening::Agent(id, _) if self.lost.contains(&id) => {}
            Happening::Agent(id, message) => self.agent(id, message),
            Happening::Ended(id, pid) => self.ended(id, pid),
            Happening::TakesPart(pid) => self.takes_part(pid),
            Happening::Broken(pid, generation) => {
                let Process { node, lives, .. } = self.processes[pid];
                self.broken.insert(generation);
                if lives && self.nodes.get(&node).is_some_and(|node| node.runs) {
                    self.tell(node, ToCoordinator::Broken { generation });
                }
            }
            Happening::Finished(pid, generation) => {
                let local_rank = self.processes[pid].local_rank;
                if let Some(node) = self.watched(pid) {
                    node.seats.finish(local_rank, generation);
                    self.tell_if_finished(self.processes[pid].node);
                }
            }
            Happening::MayLeave(pid) => {
                let process = &self.processes[pid];
                assert!(process.has_finished || !process.lives, "a rank must leave its work");
                let wait = self.random.random_range(0..300);
                self.after(wait, Happening::Exits(pid));
            }
            Happening::Exits(pid) => {
                if self.processes[pid].lives {
                    self.processes[pid].ends_well = true;
                    self.end(pid);
                }
            }
            Happening::ExitEarly => {
                if let Some(pid) = self.choose_living() {
                    self.faults += 1;
                    self.happen(Happening::Exits(pid));
                }
            }
            Happening::Place(pid, place) => self.hear(pid, place),
            Happening::Arrives(pid, generation, number) => self.arrive(pid, generation, number),
            Happening::Exchanged(pid, generation, number) => {
                self.exchanged(pid, generation, number);
            }
            Happening::Fails(pid, generation) => self.fail(pid, generation),
            Happening::Waits(pid, generation, since) => self.wait(pid, generation, since),
            Happening::LooksInVain(pid, generation, times) => self.look(pid, generation, times),
            Happening::Kill => {
                if let Some(pid) = self.choose_living() {
                    self.kill(pid);
                }
            }
            Happening::Break => {
                if let Some(pid) = self.choose_living() {
                    self.leave(pid);
                    self.next_place(pid);
                }
            }
            Happening::LoseHost => {
                if let Some(id) = self.choose_host() {
                    self.end_all(id);
                    self.nodes.remove(&id);
                    self.lost.insert(id);
                    self.send(id, false, Happening::Coordinator(id, Event::Lost(Loss::Closed)));
                }
            }
            Happening::StopHost => {
                if let Some(id) = self.choose_host() {
                    let reason = "its launcher was stopped".to_owned();
                    self.tell(id, ToCoordinator::Stopped { reason, code: 143 });
                    self.end_all(id);
                    self.nodes.remove(&id);
                    self.tell(id, ToCoordinator::Gone);
                    self.lost.insert(id);
                }
            }
            Happening::JoinHost => {
                let id = self.hosts;
                self.hosts += 1;
                let node = self.job.terms.own.clone();
                let (host, launcher) = (format!("h{id}"), format!("h{id}"));
                let node = super::Node { host, launcher, ..node };
                self.send(id, false, Happening::Coordinator(id, Event::Joined(node)));
            }
            Happening::Stall => {
                let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
                let id = *ids.choose(&mut self.random).unwrap();
                let until = self.now + self.random.random_range(100..10_000);
                let to_agent = self.random.random();
                let last = self.arrivals.entry((id, to_agent)).or_default();
                *last = until.max(*last);
            }
        }
    }

    /// Node 0 is not among them: the job ends with its launcher.
    fn choose_host(&mut self) -> Option<NodeId> {
        self.nodes.keys().copied().filter(|id| *id > 0).choose(&mut self.random)
    }

    fn choose_living(&mut self) -> Option<Pid> {
        let lives = |pid: &Pid| self.processes[*pid].lives;
        (0..self.processes.len()).filter(lives).choose(&mut self.random)
    }

    /// What a node's launcher does when it is told this.
    fn agent(&mut self, id: NodeId, message: ToAgent) {
        match message {
            ToAgent::Start { placement, waits, .. } => self.start(id, placement, waits),
            ToAgent::Regroup { placement, claim, is_loss, .. } => {
                self.regroup(id, placement, claim, is_loss);
            }
            ToAgent::Leave => {
                let Some(node) = self.nodes.get_mut(&id).filter(|node| node.runs) else { return };
                node.is_settled = true;
                self.end_replacements(id);
                for pid in self.nodes[&id].pids.clone() {
                    self.after(1, Happening::MayLeave(pid));
                }
            }
            ToAgent::Done => {
                (self.is_over, self.has_succeeded) = (true, true);
                self.end_all(id);
                self.tell(id, ToCoordinator::Gone);
            }
            ToAgent::Notice => self.tell(id, ToCoordinator::Noticed),
            ToAgent::End(end) => {
                // Others are turned away.
                let has_part = self.job.group.contains(&id) && !self.job.leaving.contains(&id);
                if has_part && end.next.is_none() {
                    let (restarts, most) = (self.job.restarts, self.job.terms.own.max_restarts);
                    assert!(restarts == most, "{} after {restarts} restarts", end.reason);
                    self.is_over = true;
                }
                self.end_all(id);
                self.tell(id, ToCoordinator::Gone);
            }
            _ => {}
        }
    }

    fn start(&mut self, id: NodeId, placement: Placement, waits: bool) {
        let count = self.job.nodes[&id].ranks;
        let pids = (0..count).map(|local_rank| self.spawn(id, local_rank)).collect();
        let seats = Seats::new(count, !waits);
        let (runs, is_settled, failed) = (true, false, false);
        self.nodes.insert(id, Node { seats, pids, placement, runs, is_settled, failed });
        if !waits {
            // All go on from a checkpoint.
            self.safe = 0;
        }
    }

    fn spawn(&mut self, node: NodeId, local_rank: u16) -> Pid {
        let pid = self.processes.len();
        self.processes.push(Process::new(node, local_rank));
        let set_up = self.random.random_range(100..600);
        self.after(set_up, Happening::TakesPart(pid));
        pid
    }

    /// The node whose launcher still watches this process.
    fn watched(&mut self, pid: Pid) -> Option<&mut Node> {
        let Process { node, local_rank, .. } = self.processes[pid];
        let node = self.nodes.get_mut(&node)?;
        (node.runs && node.pids[usize::from(local_rank)] == pid).then_some(node)
    }

    fn takes_part(&mut self, pid: Pid) {
        let Process { node: id, local_rank, lives, .. } = self.processes[pid];
        let Some(node) = self.watched(pid).filter(|_| lives) else { return };
        let placement = node.placement.clone();
        let has_place = node.seats.has_place(local_rank);
        let claim = node.seats.take_part(local_rank);
        if has_place {
            self.tell_place(pid, &placement, local_rank, false);
        }
        if let Some(claim) = claim {
            self.tell(id, ToCoordinator::TakesPart(claim));
        }
    }

    fn tell_place(&mut self, pid: Pid, placement: &Placement, number: u16, is_loss: bool) {
        let place = Seated {
            generation: placement.generation,
            rank: placement.rank(number),
            world_size: placement.world_size,
            is_loss,
        };
        // The connection to a rank is a host's own, and keeps the order.
        self.after(1, Happening::Place(pid, place));
    }

    fn ended(&mut self, id: NodeId, pid: Pid) {
        let Process { local_rank, ends_well, is_unneeded, .. } = self.processes[pid];
        let at = self.at(self.now);
        let Some(node) = self.watched(pid) else { return };
        let others_can_go_on = node.seats.all_take_part() && !node.is_settled;
        let has_place = node.seats.has_place(local_rank);
        let generation = node.placement.generation;
        node.seats.end(local_rank);
        if ends_well && has_place {
            node.is_settled = true;
            self.end_replacements(id);
            if others_can_go_on {
                self.tell(id, ToCoordinator::Settled { generation });
                self.tell_if_finished(id);
            }
        } else if !ends_well && (has_place || !is_unneeded) {
            node.failed = true;
            let failure = Failure::example(node.placement.rank(local_rank), Fault::Own, at);
            let message = match others_can_go_on {
                true => ToCoordinator::Lost { failure, claim: node.seats.claim(), generation },
                false => ToCoordinator::Failed(failure),
            };
            self.tell(id, message);
        }
        let node = &self.nodes[&id];
        if !node.failed && !node.pids.iter().any(|pid| self.processes[*pid].lives) {
            self.tell(id, ToCoordinator::Succeeded);
        }
    }

    fn tell_if_finished(&mut self, id: NodeId) {
        let Node { seats, placement, .. } = &self.nodes[&id];
        let generation = placement.generation;
        if seats.have_finished(generation) {
            self.tell(id, ToCoordinator::Finished { generation });
        }
    }

    fn end_replacements(&mut self, id: NodeId) {
        let node = &self.nodes[&id];
        let places = (0..).map(|local_rank| node.seats.has_place(local_rank));
        let waiting: Vec<_> = node.pids.iter().copied().zip(places).collect();
        for (pid, _) in waiting.into_iter().filter(|(_, has_place)| !has_place) {
            self.processes[pid].is_unneeded = true;
            self.end(pid);
        }
    }

    fn regroup(&mut self, id: NodeId, placement: Placement, claim: Claim, is_loss: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if !node.runs || node.is_settled {
            return;
        }
        node.failed = false;
        assert!(placement.restarts <= self.job.terms.own.max_restarts);
        let faults = self.faults + self.broken.len();
        assert!(placement.restarts as usize <= faults, "a restart without a fault");
        node.placement = placement.clone();
        for local_rank in node.seats.refill() {
            let pid = self.spawn(id, local_rank);
            self.nodes.get_mut(&id).unwrap().pids[usize::from(local_rank)] = pid;
        }
        let (node, mut told) = (self.nodes.get_mut(&id).unwrap(), Vec::new());
        for (number, local_rank) in node.seats.take_places(claim) {
            let pid = node.pids[usize::from(local_rank)];
            told.push((number, pid));
        }
        for (number, pid) in told {
            self.tell_place(pid, &placement, number, is_loss);
        }
    }

    /// A node's launcher ends all its ranks.
    fn end_all(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.runs = false;
            node.pids.clone().into_iter().for_each(|pid| self.end(pid));
        }
    }

    fn kill(&mut self, pid: Pid) {
        self.faults += 1;
        self.end(pid);
    }

    fn end(&mut self, pid: Pid) {
        if std::mem::take(&mut self.processes[pid].lives) {
            self.leave(pid);
            let (node, wait) = (self.processes[pid].node, 1 + self.soon());
            self.after(wait, Happening::Ended(node, pid));
        }
    }

    /// Disturbs the job so often, at random moments.
    fn disturb(&mut self, times: usize, kinds: u32) {
        for _ in 0..times {
            let happening = match self.random.random_range(0..kinds) {
                0 => Happening::LoseHost,
                4 => Happening::JoinHost,
                5 => Happening::StopHost,
                1 | 2 => Happening::Stall,
                3 => Happening::Break,
                20.. => Happening::ExitEarly,
                _ => Happening::Kill,
            };
            let wait = self.random.random_range(0..1500);
            self.after(wait, happening);
            let pause = self.random.random_range(0..1500);
            self.run(pause);
        }
    }
}

#[test]
fn after_any_kills_delays_and_partitions_all_ranks_train_together_and_end_well() {
    for seed in 0..SCHEDULES {
        let mut it = Simulation::new(seed);
        it.run(2000);
        let times = it.random.random_range(1..12);
        it.disturb(times, 20);
        it.pace = 1500..2500;
        it.run(QUIET);
        let living: Vec<_> = it.processes.iter().filter(|process| process.lives).collect();
        let seats = it.nodes.values().filter(|node| node.runs).map(|node| node.pids.len());
        if it.is_over {
            assert!(living.is_empty(), "seed {seed}: the job has ended, but not its ranks");
            continue;
        }
        assert_eq!(living.len(), seats.sum::<usize>(), "seed {seed}");
        let (generation, at) = it.last_step;
        assert!(
            it.now - at < 5000,
            "seed {seed}: the ranks have not trained for {} ms",
            it.now - at
        );
        let all_are_there = living.iter().all(|process| {
            let seated = process.seated.as_ref();
            seated.is_some_and(|seated| {
                seated.generation == generation && seated.world_size == living.len() as u32
            })
        });
        assert!(all_are_there, "seed {seed}: not all ranks train in generation {generation}");
        // The last steps, which are disturbed as well.
        it.pace = 50..150;
        it.goal = it.processes.iter().filter_map(|process| process.steps).max().unwrap_or(0) + 3;
        let times = it.random.random_range(0..4);
        it.disturb(times, 22);
        // If all must start again, they do all steps again. They may have waited in vain before.
        it.run(JOIN + 5 * QUIET);
        let (restarts, most) = (it.job.restarts, it.job.terms.own.max_restarts);
        assert!(it.job.is_over(), "seed {seed}: the job does not end");
        assert!(it.has_succeeded || restarts == most, "seed {seed}: the job has failed");
        assert!(!it.processes.iter().any(|process| process.lives), "seed {seed}: ranks are left");
    }
}

#[test]
fn a_thousand_nodes_agree_in_one_message_to_the_coordinator_and_one_to_each_of_them() {
    let mut it = Simulation::of(1000, 1, 1, StdRng::seed_from_u64(0));
    // The others have long gone on when another rank is there.
    it.delay = 2;
    it.run(2000);
    let (lost, before) = (it.processes.len() / 2, it.messages);
    assert!(it.last_step.1 > 1000, "all train");
    it.kill(lost);
    let is_without = |it: &Simulation| it.last_step.0 == 1;
    let began = it.now;
    while !is_without(&it) && it.now < began + 5000 {
        it.run(1);
    }
    assert!(is_without(&it));
    assert_eq!(it.messages - before, 1 + 1000);
    // The kill is noticed, told and answered, the ranks meet, and take a step.
    assert!(it.now - began <= 5 * it.delay + it.pace.end, "it took {} ms", it.now - began);
}
