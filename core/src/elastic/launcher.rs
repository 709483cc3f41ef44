//! What the launcher tells this process of its place in the job, and of its changes.

use crate::distributed::{ProcessGroup, Standing, expect_no_member};
use crate::{Error, Result, check};
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::{os::unix::net::UnixStream, path::Path, thread, time::Duration};
use tch_parallel_base::lock;
use tch_parallel_contract::ELASTIC;

/// The connection to the launcher.
pub(super) struct Launcher {
    stream: UnixStream,
    pub(super) news: Arc<News>,
}

/// What the launcher has said.
#[derive(Debug, Default)]
pub(super) struct News {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    /// The places that this process has not taken yet, oldest first: the same for all ranks, unless one is lost.
    places: VecDeque<Place>,
    /// The generation of the last one.
    newest: u64,
    /// The last generation that follows a loss.
    last_loss: u64,
    /// Whether the launcher is gone.
    is_over: bool,
    /// Whether all ranks have finished.
    may_leave: bool,
    /// The group that this process is in.
    group: Option<Standing>,
}

/// What the launcher says.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Place(Place),
    Leave,
}

/// A place in one generation of the job.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Place {
    pub(super) generation: u64,
    /// Whether a rank of the last generation is gone: whatever waits for it must fail.
    is_loss: bool,
    /// What would be this process's environment variables if it started now.
    pub(super) variables: HashMap<String, String>,
}

impl Launcher {
    /// Tells the launcher that this process takes part; `None` if no launcher has started it that could replace ranks.
    pub(super) fn connect() -> Result<Option<Launcher>> {
        let Some(address) = std::env::var_os(ELASTIC) else { return Ok(None) };
        // The launcher accepts one connection from each process.
        static CONNECTED: AtomicBool = AtomicBool::new(false);
        let is_first = !CONNECTED.swap(true, Ordering::SeqCst);
        let expected = "called once in a process, around all of its training";
        check(is_first, "elastic::run", "called again", expected)?;
        expect_no_member("elastic::run")?;
        let failed = || Error::io("connect to the launcher at", &address);
        let stream = UnixStream::connect(Path::new(&address)).map_err(failed())?;
        let incoming = BufReader::new(stream.try_clone().map_err(failed())?);
        let news = Arc::new(News::default());
        let listener = Arc::clone(&news);
        let listen = move || listener.listen(incoming);
        thread::Builder::new().name("launcher".into()).spawn(listen).map_err(failed())?;
        Ok(Some(Launcher { stream, news }))
    }

    /// Says that the group of this generation cannot be used, which the launcher may not know.
    pub(super) fn report_broken(&self, generation: u64) {
        // A launcher that is gone ends this process.
        let _ = writeln!(&self.stream, "broken {generation}");
    }

    /// Says that this process has finished, and waits for the others. `false` if another generation follows a loss.
    pub(super) fn finish(&self, generation: u64) -> bool {
        // A launcher that is gone ends this process.
        let _ = writeln!(&self.stream, "finished {generation}");
        let waits =
            |heard: &mut Heard| !heard.may_leave && heard.newest <= generation && !heard.is_over;
        let outcome = self.news.changed.wait_while(lock(&self.news.heard), waits);
        outcome.unwrap_or_else(PoisonError::into_inner).newest <= generation
    }
}

impl News {
    fn listen(&self, incoming: impl BufRead) {
        for line in incoming.lines().map_while(Result::ok) {
            let mut heard = lock(&self.heard);
            match serde_json::from_str(&line) {
                Ok(Told::Leave) => heard.may_leave = true,
                Ok(Told::Place(place)) => {
                    if place.is_loss {
                        heard.places.clear();
                        heard.last_loss = place.generation;
                        heard.group.iter().for_each(Standing::fail);
                    }
                    heard.newest = place.generation;
                    heard.places.push_back(place);
                }
                // Launchers of another version say something else.
                Err(_) => break,
            }
            self.changed.notify_all();
        }
        lock(&self.heard).is_over = true;
        self.changed.notify_all();
    }

    /// The next place, unless it takes longer than `limit`.
    pub(super) fn next_place(&self, limit: Duration) -> Result<Option<Place>> {
        let waits = |heard: &mut Heard| heard.places.is_empty() && !heard.is_over;
        let outcome = self.changed.wait_timeout_while(lock(&self.heard), limit, waits);
        let mut heard = outcome.unwrap_or_else(PoisonError::into_inner).0;
        match heard.places.pop_front() {
            None if heard.is_over => Err(Error::Environment {
                variable: ELASTIC.into(),
                found: "is set, but the launcher has closed the connection".into(),
                expected: "one that starts this process as a rank".into(),
            }),
            place => Ok(place),
        }
    }

    /// Whether there will be one within this time.
    pub(super) fn changes_within(&self, generation: u64, limit: Duration) -> bool {
        let waits = |heard: &mut Heard| heard.newest <= generation && !heard.is_over;
        let outcome = self.changed.wait_timeout_while(lock(&self.heard), limit, waits);
        outcome.unwrap_or_else(PoisonError::into_inner).0.newest > generation
    }

    /// Whether there is a place in a later generation.
    pub(super) fn is_later_than(&self, generation: u64) -> bool {
        lock(&self.heard).newest > generation
    }

    /// Whether a rank of this generation is gone.
    pub(super) fn is_loss_after(&self, generation: u64) -> bool {
        lock(&self.heard).last_loss > generation
    }

    /// Fails this group as soon as one of its ranks is known to be gone. `None` before the group is left.
    pub(super) fn watch(&self, generation: u64, group: Option<&ProcessGroup>) {
        let mut heard = lock(&self.heard);
        heard.group = group.map(ProcessGroup::standing);
        if heard.last_loss > generation {
            heard.group.iter().for_each(Standing::fail);
        }
    }
}
