//! Groups of some of a group's ranks.

use super::{init::meet, place::Place, process_group::ProcessGroup, store::digest};
use crate::distributed::fault::members::member;
use crate::{Error, Result, check};
use c10d_sys::lock;

impl ProcessGroup {
    /// A group of some of this group's ranks, with the same backend and device and this handle's timeout
    /// ([`with_timeout`](Self::with_timeout)); `None` on a rank that is not among them. `dist.new_group(ranks)`.
    ///
    /// The new group numbers its ranks from 0 in ascending order, and its methods take these numbers. Only its members
    /// need to call this, as with `use_local_synchronization=True`; for several groups of the same ranks, in the same
    /// order. They wait for each other; rank 0 of the job, which serves the store, must not end before that. A rank can
    /// be in several groups.
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
    /// - [`Error::Argument`]: the group is that of [`elastic::run`](crate::elastic::run), or `ranks` is empty or contains
    ///   a rank twice or one that is not in the group, or this process may not open as many files as the new group needs.
    /// - [`Error::Rendezvous`]: a member did not arrive within the timeout.
    pub fn new_group(&self, ranks: &[usize]) -> Result<Option<ProcessGroup>> {
        let expected = "not used there: only the job's own group ends when a rank is lost";
        let is_elastic = self.inner.post_mortem.is_elastic;
        check(!is_elastic, "new_group", "called within elastic::run", expected)?;
        ranks.iter().try_for_each(|&rank| self.check_rank("ranks", rank))?;
        let mut members = ranks.to_vec();
        members.sort_unstable();
        members.dedup();
        let are_distinct = !members.is_empty() && members.len() == ranks.len();
        check(are_distinct, "ranks", format_args!("{ranks:?}"), "one rank or more, each once")?;
        self.refuse_python("new_group", members.iter().copied())?;
        let Some(rank) = members.iter().position(|&member| member == self.rank()) else {
            return Ok(None);
        };
        let mut groups = lock(&self.inner.groups);
        let number = groups.entry(members.clone()).and_modify(|made| *made += 1).or_insert(0);
        // Thousands of ranks would make too long a key.
        let prefix = format!("new_group/{}/{number}", digest(&members));
        drop(groups);
        let store = self.inner.store.try_clone()?.with_prefix(&prefix)?;
        let (world_size, timeout) = (members.len(), self.timeout());
        let place = Place { rank, world_size, timeout, join_timeout: timeout, ..self.inner.place };
        let in_job = self.ranks();
        let names: Vec<_> = members.iter().map(|&rank| in_job[rank]).collect();
        meet(&store, place, Some(&names)).map(Some)
    }

    /// The numbers of this group's ranks in the job, in order; in a group of [`with_store`](Self::with_store), a Python
    /// rank has its number in the group. `dist.get_process_group_ranks(group)`
    #[doc(alias = "get_global_rank")]
    pub fn ranks(&self) -> Vec<usize> {
        let members = &self.inner.post_mortem.search.members;
        let name = |rank| member(members, rank).map_or(rank, |it| it.name);
        (0..self.world_size()).map(name).collect()
    }

    /// Divides the group into parts, and returns this rank's; `None` on a rank that is in no part. Every rank
    /// of this group must call it. `dist.split_group(split_ranks=…)`, `dist.new_subgroups_by_enumeration`
    ///
    /// # Errors
    /// Those of [`new_group`](Self::new_group), and [`Error::Argument`] for no part or a rank in two.
    #[doc(alias = "new_subgroups_by_enumeration")]
    pub fn split_group(&self, split_ranks: &[Vec<usize>]) -> Result<Option<ProcessGroup>> {
        check(!split_ranks.is_empty(), "split_ranks", "an empty list", "one part or more")?;
        let mut all = split_ranks.concat();
        all.sort_unstable();
        if let Some(twice) = all.windows(2).find(|pair| pair[0] == pair[1]) {
            let found = format!("a list with rank {} twice", twice[0]);
            return Err(Error::argument("split_ranks", found, "each rank at most once"));
        }
        split_ranks.iter().try_fold(None, |own, ranks| Ok(self.new_group(ranks)?.or(own)))
    }

    /// Divides the group into parts of `group_size` consecutive ranks, and returns this rank's. Every rank of
    /// this group must call it. `dist.new_subgroups(group_size)`
    ///
    /// ```
    /// use tch_parallel::distributed::ProcessGroup;
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let host = group.new_subgroups(group.local_world_size())?;
    /// assert_eq!(host.world_size(), group.local_world_size());
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`new_group`](Self::new_group), and [`Error::Argument`] if `group_size` does not divide the ranks.
    pub fn new_subgroups(&self, group_size: usize) -> Result<ProcessGroup> {
        let ranks: Vec<_> = (0..self.world_size()).collect();
        let is_divisor = group_size > 0 && ranks.len().is_multiple_of(group_size);
        let expected = format!("a divisor of {}, the number of ranks", ranks.len());
        check(is_divisor, "group_size", group_size, expected)?;
        let parts: Vec<_> = ranks.chunks(group_size).map(<[_]>::to_vec).collect();
        let own = self.split_group(&parts)?;
        Ok(own.unwrap_or_else(|| unreachable!("every rank is in one of the parts")))
    }
}
