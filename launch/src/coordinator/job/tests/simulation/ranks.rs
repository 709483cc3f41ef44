//! What the simulated ranks do: the same as `tch_parallel::elastic`, except that of their weights only the number of steps
//! is known. They meet in a generation, bring each other up to the one that is furthest, take steps together, and go on
//! to the next generation when an exchange fails or they have a place there. After the last step they meet once more,
//! wait until all may leave, and exit.

use super::*;

/// Milliseconds. How long a rank looks for a place before it says that its group has failed, and then before it ends:
/// `NOTICE` of `tch_parallel::elastic`.
const NOTICE_OF_RANKS: u64 = 1000;

/// How long it waits for the others of a generation, of which it hears nothing.
pub(super) const JOIN: u64 = 10 * 60 * 1000;

pub(super) type Pid = usize;

#[derive(Debug)]
pub(super) struct Seated {
    pub(super) generation: u32,
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) is_loss: bool,
}

#[derive(Default)]
pub(super) struct Process {
    pub(super) node: NodeId,
    pub(super) local_rank: u16,
    pub(super) lives: bool,
    /// Whether it has ended with exit code 0, or the launcher has ended it because nobody needs it.
    pub(super) ends_well: bool,
    pub(super) is_unneeded: bool,
    /// Whether it has finished, and waits until all others have.
    pub(super) has_finished: bool,
    places: VecDeque<Seated>,
    newest: Option<u32>,
    /// The generation that it is in.
    pub(super) seated: Option<Seated>,
    /// Whether it has not met the others there.
    waits: bool,
    /// The one that it was in last.
    last: u32,
    /// The steps that its weights have had; `None` for one that has not met the others.
    pub(super) steps: Option<u64>,
}

#[derive(Default)]
pub(super) struct Group {
    members: BTreeMap<u32, Pid>,
    world_size: u32,
    /// Who has come to the current exchange, whose number it is.
    arrived: Vec<Pid>,
    number: u64,
    /// For whom it has not ended.
    pending: Vec<Pid>,
    /// For how many it has.
    ended: u32,
}

impl Process {
    pub(super) fn new(node: NodeId, local_rank: u16) -> Self {
        Process { node, local_rank, lives: true, ..Process::default() }
    }
}

impl Simulation {
    fn fail(&mut self, pid: Pid, generation: u32) {
        if self.place_in(pid, generation).is_some() {
            self.cut_off(pid);
        }
    }

    /// A rank has waited so long for the others of a generation. If there is a later one, they may have gone on.
    fn wait(&mut self, pid: Pid, generation: u32, since: u64) {
        if self.place_in(pid, generation).is_none() || !self.processes[pid].waits {
            return;
        }
        if self.processes[pid].newest > Some(generation) {
            self.fail(pid, generation);
        } else if self.now - since > JOIN {
            self.kill(pid);
        } else {
            self.after(NOTICE_OF_RANKS, move |it| it.wait(pid, generation, since));
        }
    }

    /// A rank has looked for a place for so long.
    fn look(&mut self, pid: Pid, generation: u32, times: u32) {
        let process = &self.processes[pid];
        if !process.lives || process.seated.is_some() || process.last != generation {
            return;
        }
        if times == 1 {
            self.after(1, move |it| it.broken(pid, generation));
            self.after(NOTICE_OF_RANKS, move |it| it.look(pid, generation, 2));
        } else {
            self.kill(pid);
        }
    }

    pub(super) fn hear(&mut self, pid: Pid, place: Seated) {
        let process = &mut self.processes[pid];
        if !process.lives {
            return;
        }
        assert!(process.newest < Some(place.generation), "{place:?} is older than another");
        process.newest = Some(place.generation);
        if place.is_loss {
            process.places.clear();
            self.leave(pid);
        }
        self.processes[pid].places.push_back(place);
        self.next_place(pid);
    }

    /// A rank that is in no generation takes its next place.
    pub(super) fn next_place(&mut self, pid: Pid) {
        let process = &mut self.processes[pid];
        if process.seated.is_some() || !process.lives {
            return;
        }
        let Some(place) = process.places.pop_front() else {
            let generation = process.last;
            if !process.has_finished {
                self.after(NOTICE_OF_RANKS, move |it| it.look(pid, generation, 1));
            }
            return;
        };
        let generation = place.generation;
        process.seated = Some(place);
        (process.waits, process.last, process.has_finished) = (true, generation, false);
        let since = self.now;
        self.after(NOTICE_OF_RANKS, move |it| it.wait(pid, generation, since));
        self.within(0..=self.delay, move |it| it.arrive(pid, generation, 0));
    }

    fn place_in(&self, pid: Pid, generation: u32) -> Option<&Seated> {
        self.processes[pid].seated.as_ref().filter(|seated| seated.generation == generation)
    }

    /// A rank leaves its generation: nobody there can exchange anything with it any more, though some may just have.
    pub(super) fn leave(&mut self, pid: Pid) {
        let Some(Seated { generation, .. }) = self.processes[pid].seated.take() else { return };
        let Some(group) = self.groups.get_mut(&generation) else { return };
        group.arrived.retain(|other| *other != pid);
        let others = group.members.values().copied().filter(|other| *other != pid);
        for other in others.collect::<Vec<_>>() {
            let has_all: bool = self.random.random();
            let group = self.groups.get_mut(&generation).unwrap();
            if !has_all {
                group.pending.retain(|pending| *pending != other);
            }
            self.within(0..=self.delay, move |it| it.fail(other, generation));
        }
    }

    fn arrive(&mut self, pid: Pid, generation: u32, number: u64) {
        let Some(&Seated { rank, world_size, .. }) = self.place_in(pid, generation) else { return };
        let group = self.groups.entry(generation).or_default();
        if number == 0 {
            let other = group.members.insert(rank, pid);
            assert!(rank > 0 || self.processes[pid].node == 0, "the store is not where all look");
            assert!(other.is_none(), "two processes are rank {rank} of generation {generation}");
            assert!(group.world_size == 0 || group.world_size == world_size);
            group.world_size = world_size;
        }
        group.arrived.push(pid);
        if group.arrived.len() < world_size as usize {
            return;
        }
        assert_eq!(group.members.len(), world_size as usize);
        let members = std::mem::take(&mut group.arrived);
        (group.number, group.pending, group.ended) = (number, members.clone(), 0);
        let steps = members.iter().map(|pid| self.processes[*pid].steps);
        if number == 0 {
            let newest = steps.max().flatten().unwrap_or(0);
            // Without any rank that has the weights, the training begins again.
            let is_kept = |it: &Process| it.lives && it.steps >= Some(self.safe);
            let is_lost = newest < self.safe && self.processes.iter().any(is_kept);
            assert!(!is_lost, "a step that all have committed is lost");
            self.safe = self.safe.min(newest);
        } else {
            let all: Vec<_> = steps.collect();
            assert!(all.iter().all(|it| *it == all[0]), "ranks take different steps: {all:?}");
            assert!(generation >= self.last_step.0, "two generations train");
            self.last_step = (generation, self.now);
        }
        for pid in members {
            self.within(1..=1 + self.delay, move |it| it.exchanged(pid, generation, number));
        }
    }

    /// An exchange ends for a rank: it knows which step the others are at, or commits one.
    fn exchanged(&mut self, pid: Pid, generation: u32, number: u64) {
        let is_in = self.place_in(pid, generation).is_some();
        let Some(group) = self.groups.get_mut(&generation).filter(|_| is_in) else { return };
        if group.number != number || !group.pending.contains(&pid) {
            return;
        }
        group.pending.retain(|other| *other != pid);
        group.ended += 1;
        let all_have_ended = group.ended == group.world_size;
        let members: Vec<Pid> = group.members.values().copied().collect();
        if number == 0 {
            self.processes[pid].waits = false;
            // The weights come from one that has the newest, and may have gone on meanwhile only by none.
            let newest = members.iter().filter_map(|pid| self.processes[*pid].steps).max();
            self.processes[pid].steps = newest.or(Some(0));
        } else if self.processes[pid].steps >= Some(self.goal) {
            // Its part of the exchange still reaches the others.
            let process = &mut self.processes[pid];
            (process.seated, process.has_finished) = (None, true);
            self.after(1, move |it| it.finished(pid, generation));
            return self.next_place(pid);
        } else {
            let steps = self.processes[pid].steps.map(|steps| steps + 1);
            self.processes[pid].steps = steps;
            if all_have_ended {
                self.safe = self.safe.max(steps.unwrap_or(0));
            }
            if self.processes[pid].newest > Some(generation) {
                self.leave(pid);
                return self.next_place(pid);
            }
        }
        self.within(self.pace.clone(), move |it| it.arrive(pid, generation, number + 1));
    }
}
