//! Runs that several tests look at, each of them made once.

use crate::{Job, prelude::*};
use anyhow::anyhow;
use std::fmt::Debug;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The results of runs, each under the text of its key.
pub struct Shared<T>(Mutex<BTreeMap<String, Arc<Run<T>>>>);

type Run<T> = OnceLock<Result<Arc<T>, String>>;

impl<T> Shared<T> {
    #[expect(clippy::new_without_default, reason = "a static needs a const function")]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// What `run` returned to the first who asked for this key. Others who ask meanwhile wait for it;
    /// its failure is theirs too.
    pub fn get(&self, key: impl Debug, run: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = Arc::clone(runs.entry(format!("{key:?}")).or_default());
        drop(runs);
        let run = || run().map(Arc::new).map_err(|error| format!("{error:#}"));
        shared.get_or_init(run).clone().map_err(|error| anyhow!(error))
    }
}

/// What a program that must succeed prints to stdout, in a job of its own. The same command is run only once.
pub fn printed(program: Command) -> Result<String> {
    static RUNS: Shared<String> = Shared::new();
    let run = |program| Ok(Job::new()?.run(program)?.expect_success()?.stdout);
    Ok(RUNS.get(format!("{program:?}"), || run(program))?.to_string())
}

/// What a program that must succeed prints to stdout, and a file that it writes.
pub fn printed_and_written(program: Command, file: &str) -> Result<(String, String)> {
    let job = Job::new()?;
    Ok((job.run(program)?.expect_success()?.stdout, job.text(file)?))
}

#[test]
fn a_run_is_made_once_for_each_key_and_its_failure_is_everybodys() {
    let runs = Shared::new();
    assert_eq!(*runs.get([1], || Ok("first")).unwrap(), "first");
    assert_eq!(*runs.get([1], || Ok("again")).unwrap(), "first");
    assert_eq!(*runs.get([2], || Ok("another")).unwrap(), "another");
    for _ in 0..2 {
        assert_eq!(runs.get([3], || Err(anyhow!("no third"))).unwrap_err().to_string(), "no third");
    }
}
