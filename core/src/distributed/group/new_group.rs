//! Groups of some of a group's ranks.

use super::init::meet;
use super::place::Place;
use super::process_group::ProcessGroup;
use crate::{Error, Result};
use std::sync::atomic::Ordering;

impl ProcessGroup {
    /// A group of some of this group's ranks, with the same backend and device and this handle's
    /// timeout ([`with_timeout`](Self::with_timeout)); `None` on a rank that is not among them.
    /// `dist.new_group(ranks)`.
    ///
    /// The new group numbers its ranks from 0 in ascending order, and its methods take these
    /// numbers. Every rank of this group must call it, whether or not it is in `ranks`, and in the
    /// same order if several groups are made. Only the members wait for each other, as with
    /// `use_local_synchronization=True`; rank 0 of the job, which serves the store, must not end
    /// before that. A rank can be in several groups.
    ///
    /// ```
    /// use tch_parallel::distributed::ProcessGroup;
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let even: Vec<usize> = (0..group.world_size()).step_by(2).collect();
    /// if let Some(even_ranks) = group.new_group(&even)? {
    ///     even_ranks.barrier()?; // which the odd ranks do not call
    /// }
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::Argument`]: `ranks` is empty, or contains a rank twice or one that is not in the
    ///   group, or this process may not open as many files as the new group needs.
    /// - [`Error::Rendezvous`]: a member did not arrive within the timeout.
    #[doc(alias = "new_subgroups")]
    pub fn new_group(&self, ranks: &[usize]) -> Result<Option<ProcessGroup>> {
        for &rank in ranks {
            self.check_rank("ranks", rank)?;
        }
        let mut members = ranks.to_vec();
        members.sort_unstable();
        members.dedup();
        if members.is_empty() || members.len() < ranks.len() {
            let expected = "one rank or more, each once";
            return Err(Error::argument("ranks", format!("{ranks:?}"), expected));
        }
        self.refuse_python("new_group", members.iter().copied())?;
        let number = self.inner.groups.fetch_add(1, Ordering::Relaxed);
        let Some(rank) = members.iter().position(|&member| member == self.rank()) else {
            return Ok(None);
        };
        let store = self.inner.store.try_clone()?.with_prefix(&format!("new_group/{number}"))?;
        let (world_size, timeout) = (members.len(), self.timeout());
        let place = Place { rank, world_size, timeout, join_timeout: timeout, ..self.inner.place };
        meet(&store, place).map(Some)
    }
}
