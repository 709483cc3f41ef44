//! Which local ranks of a node have a place in a job whose ranks come and go. Pure, so that it can be simulated.

use crate::protocol::Claim;

pub(crate) struct Seats {
    seats: Vec<Seat>,
    /// What the coordinator has been told and may still answer.
    claims: Vec<Vec<Seat>>,
    /// How many it has answered.
    answered: u32,
}

/// A local rank, and what is known of its process.
#[derive(Clone, Copy)]
struct Seat {
    local_rank: u16,
    /// How many processes it had before.
    tenant: u32,
    runs: bool,
    /// Whether the process has said that it can be given another place.
    takes_part: bool,
    /// One that replaces another gets its place once it takes part.
    has_place: bool,
    /// The last generation in which it has finished.
    finished: Option<u32>,
}

impl Seat {
    fn new(local_rank: u16, tenant: u32, has_place: bool) -> Self {
        Seat { local_rank, tenant, runs: true, takes_part: false, has_place, finished: None }
    }
}

impl Seats {
    pub(crate) fn new(count: u16, has_place: bool) -> Self {
        let seat = |local_rank| Seat::new(local_rank, 0, has_place);
        Seats { seats: (0..count).map(seat).collect(), claims: Vec::new(), answered: 0 }
    }

    fn seat(&mut self, local_rank: u16) -> &mut Seat {
        &mut self.seats[usize::from(local_rank)]
    }

    pub(crate) fn has_place(&self, local_rank: u16) -> bool {
        self.seats[usize::from(local_rank)].has_place
    }

    /// A rank can be given another place. Returns what to tell the coordinator, once all with a place have said so.
    pub(crate) fn take_part(&mut self, local_rank: u16) -> Option<Claim> {
        self.seat(local_rank).takes_part = true;
        self.all_take_part().then(|| self.claim())
    }

    pub(crate) fn end(&mut self, local_rank: u16) {
        self.seat(local_rank).runs = false;
    }

    pub(crate) fn finish(&mut self, local_rank: u16, generation: u32) {
        self.seat(local_rank).finished = Some(generation);
    }

    /// Whether all that have a place have finished in this generation.
    pub(crate) fn have_finished(&self, generation: u32) -> bool {
        let mut placed = self.seats.iter().filter(|seat| seat.runs && seat.has_place);
        placed.all(|seat| seat.finished == Some(generation))
    }

    /// Whether all that have a place can be given another one.
    pub(crate) fn all_take_part(&self) -> bool {
        self.seats.iter().all(|seat| seat.takes_part || !seat.has_place)
    }

    /// What can have a place in the next generation.
    pub(crate) fn claim(&mut self) -> Claim {
        let there = self.seats.iter().filter(|seat| seat.runs && seat.takes_part);
        self.claims.push(there.copied().collect());
        let number = self.answered + self.claims.len() as u32 - 1;
        Claim { number, ranks: self.claims.last().map_or(0, Vec::len) as u16 }
    }

    /// The local ranks whose process has ended: each gets a new one.
    pub(crate) fn refill(&mut self) -> Vec<u16> {
        let ended = self.seats.iter_mut().filter(|seat| !seat.runs);
        let refill = |seat: &mut Seat| {
            *seat = Seat::new(seat.local_rank, seat.tenant + 1, false);
            seat.local_rank
        };
        ended.map(refill).collect()
    }

    /// The coordinator has places for this claim. Returns the local ranks that take them, with their numbers. One
    /// that has ended since then takes none: the coordinator has been told, and another generation follows.
    pub(crate) fn take_places(&mut self, claim: Claim) -> Vec<(u16, u16)> {
        let Some(index) = claim.number.checked_sub(self.answered) else { return Vec::new() };
        let Some(claimed) = self.claims.get(index as usize).cloned() else { return Vec::new() };
        // Another rank may come in with the same ones: all go through both generations.
        let mut taken = Vec::new();
        for (number, Seat { local_rank, tenant, .. }) in (0..).zip(claimed) {
            let seat = self.seat(local_rank);
            if seat.runs && seat.tenant == tenant {
                seat.has_place = true;
                taken.push((number, local_rank));
            }
        }
        self.claims.drain(..index as usize);
        self.answered = claim.number;
        taken
    }
}
