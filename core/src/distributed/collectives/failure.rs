//! What is known of a group in which an exchange has failed.

use crate::distributed::fault::blame::{Reason, failed_collective, may_be_anothers_fault};
use crate::distributed::fault::first_fault::{self, Fault};
use crate::{Error, Result, distributed::fault::in_time::ANSWER, distributed::group::ProcessGroup};
use std::fmt::Display;

impl ProcessGroup {
    /// Why an exchange of this group has failed, if one has because of another rank. `ProcessGroup.get_error()`
    ///
    /// It asks nobody and waits for nothing. Over NCCL, an exchange fails after its call has returned, and what is then
    /// read from the GPU is useless, such as a NaN. Ask here before you look for another cause. `None` does not mean
    /// that all ranks are well: nobody looks while no exchange waits for them, and nobody may be found to be at fault.
    #[doc(alias = "getError")]
    pub fn get_error(&self) -> Option<Error> {
        let blame = self.inner.post_mortem.found.get()?;
        let message = "what this rank has computed from it is useless";
        Some(failed_collective(self.job_rank(), "an exchange", message, Some(blame.clone())))
    }

    /// The error for an operation that the engine could not carry out, with the rank at fault.
    pub(crate) fn failed(&self, operation: &'static str, error: &c10d_sys::Error) -> Error {
        if !may_be_anothers_fault(error) {
            return self.failed_here(operation, error.message());
        }
        self.inner.unfinished.set_lost();
        let blame = self.inner.post_mortem.blame();
        failed_collective(self.job_rank(), operation, error.message(), blame)
    }

    /// The error for an operation that failed on this rank alone.
    pub(crate) fn failed_here(&self, operation: &'static str, message: &str) -> Error {
        // Without a report, the others would only notice that this rank is gone.
        self.report(message);
        failed_collective(self.job_rank(), operation, message, None)
    }

    /// The error for a wait that has ended for this reason.
    pub(crate) fn given_up(&self, operation: &'static str, (message, blame): Reason) -> Error {
        if let Some(blame) = &blame {
            self.inner.unfinished.set_lost();
            self.inner.post_mortem.remember(blame);
        } else {
            // Another rank may only have objected.
            self.inner.unfinished.set_failed();
            first_fault::remember(|| Fault::Another(Some(message.clone())));
        }
        failed_collective(self.job_rank(), operation, message, blame)
    }

    /// Whether an exchange has failed, in which case this rank may be the victim of another.
    pub(crate) fn has_failed(&self) -> bool {
        self.inner.unfinished.has_failed()
    }

    /// Lets the other ranks report this rank's failure as the cause of theirs.
    pub(crate) fn report(&self, fault: &str) {
        self.inner.unfinished.set_failed();
        self.inner.post_mortem.report(fault, ANSWER);
    }

    /// Lets the ranks that wait for this one name its error.
    pub(crate) fn or_report<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.report(&error.to_string()))
    }

    /// The same, unless the error comes from another rank's failure, which has already been reported.
    pub(crate) fn or_report_first<T, E: Display>(&self, result: Result<T, E>) -> Result<T, E> {
        result.inspect_err(|error| {
            if !self.has_failed() {
                self.report(&format!("{error:#}"));
            }
        })
    }

    /// A failed backward pass of this rank, for which the others wait in the middle of their exchange.
    pub(crate) fn failed_backward(&self, error: c10d_sys::Error) -> Error {
        if may_be_anothers_fault(&error) {
            return self.failed("backward", &error);
        }
        if !self.has_failed() {
            self.report(error.message());
        }
        Error::engine("backward")(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::fault::blame::Blame;

    #[test]
    fn a_group_remembers_which_rank_made_it_fail_first() {
        let group = ProcessGroup::from_env().unwrap();
        assert!(group.get_error().is_none());
        // As the thread does that aborts NCCL's communicators: no call has failed yet.
        for (rank, what) in [(1, "rank 1 (pid 7) has ended"), (2, "rank 2 (pid 8) has ended")] {
            group.inner.post_mortem.remember(&Blame { rank: Some(rank), what: what.into() });
        }
        let error = group.get_error().unwrap();
        assert_eq!(error.culprit(), Some(1));
        assert!(error.to_string().ends_with("(rank 1 (pid 7) has ended)"), "{error}");
    }
}
