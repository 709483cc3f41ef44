//! What the launcher tells this process of its place in the job, and of its changes.

use crate::distributed::{Env, ProcessGroup, Standing};
use crate::{Error, Result};
use serde::Deserialize;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tch_parallel_base::lock;
use tch_parallel_contract::ELASTIC;

/// The connection to the launcher.
pub(super) struct Launcher {
    stream: UnixStream,
    news: Arc<News>,
}

/// What has been heard of it.
#[derive(Default)]
pub(super) struct News {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    /// The newest place.
    place: Option<Place>,
    /// Whether the launcher is gone.
    is_over: bool,
    /// The group that this process is in.
    group: Option<Standing>,
}

/// A place in one generation of the job.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Place {
    pub(super) generation: u64,
    /// Whether a rank of the last generation is gone: whatever waits for it must fail.
    is_loss: bool,
    /// What would be this process's environment variables if it started now.
    variables: HashMap<String, String>,
}

impl Place {
    pub(super) fn env(&self) -> Result<Env> {
        Env::in_an_elastic_job(&self.variables)
    }
}

impl Launcher {
    /// Tells the launcher that this process takes part; `None` if no launcher has started it that could
    /// replace ranks.
    pub(super) fn connect() -> Result<Option<Launcher>> {
        let Some(address) = std::env::var_os(ELASTIC) else { return Ok(None) };
        let failed = || Error::io("connect to the launcher at", &address);
        let stream = UnixStream::connect(Path::new(&address)).map_err(failed())?;
        let incoming = BufReader::new(stream.try_clone().map_err(failed())?);
        let news = Arc::new(News::default());
        let listener = Arc::clone(&news);
        let listen = move || listener.listen(incoming);
        thread::Builder::new().name("launcher".into()).spawn(listen).map_err(failed())?;
        Ok(Some(Launcher { stream, news }))
    }

    pub(super) fn news(&self) -> &Arc<News> {
        &self.news
    }

    /// Says that the group of this generation cannot be used, which the launcher may not know.
    pub(super) fn report(&self, generation: u64) {
        // A launcher that is gone ends this process.
        let _ = writeln!(&self.stream, "{generation}");
    }
}

impl News {
    fn listen(&self, incoming: impl BufRead) {
        for line in incoming.lines().map_while(Result::ok) {
            // Launchers of another version say something else.
            let Ok(place) = serde_json::from_str::<Place>(&line) else { break };
            let mut heard = lock(&self.heard);
            if let Some(group) = heard.group.as_ref().filter(|_| place.is_loss) {
                group.fail();
            }
            heard.place = Some(place);
            self.changed.notify_all();
        }
        lock(&self.heard).is_over = true;
        self.changed.notify_all();
    }

    /// The first place, or the next one after `generation`, unless it takes longer than `limit`.
    pub(super) fn place_after(
        &self,
        generation: Option<u64>,
        limit: Duration,
    ) -> Result<Option<Place>> {
        let deadline = Instant::now() + limit;
        let mut heard = lock(&self.heard);
        loop {
            let is_new = |place: &&Place| generation.is_none_or(|last| place.generation > last);
            if let Some(place) = heard.place.as_ref().filter(is_new) {
                return Ok(Some(place.clone()));
            }
            if heard.is_over {
                let found = "is set, but the launcher has closed the connection";
                let expected = "one that starts this process as a rank".to_owned();
                return Err(Error::Environment {
                    variable: ELASTIC.into(),
                    found: found.into(),
                    expected,
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            heard = self
                .changed
                .wait_timeout(heard, left)
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .0;
        }
    }

    /// Whether there is a place in a later generation.
    pub(super) fn is_later_than(&self, generation: u64) -> bool {
        lock(&self.heard).place.as_ref().is_some_and(|place| place.generation > generation)
    }

    /// Fails this group as soon as one of its ranks is known to be gone. `None` before the group is left.
    pub(super) fn watch(&self, generation: u64, group: Option<&ProcessGroup>) {
        let mut heard = lock(&self.heard);
        heard.group = group.map(ProcessGroup::standing);
        let is_lost =
            heard.place.as_ref().is_some_and(|it| it.is_loss && it.generation > generation);
        if let Some(group) = heard.group.as_ref().filter(|_| is_lost) {
            group.fail();
        }
    }
}
