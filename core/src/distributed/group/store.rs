//! A job's key-value store, which all its processes share.

use super::env::Env;
use super::rendezvous::{self, NAMED};
use crate::distributed::fault::blame::may_be_anothers_fault;
use crate::distributed::fault::first_fault::{self, Fault};
use crate::{Error, Result};
use c10d_sys::{ErrorKind, GlooAddress, LONGEST_TIMEOUT};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::{sync::Arc, time::Duration};

mod origin;

use origin::Origin;
pub(crate) use origin::expect_no_member;

/// Keys (up to 8 KiB) and values (8 MiB) that all processes of a job can set and wait for. Clones share the connection.
///
/// PyTorch's counterparts are `torch.distributed.TCPStore` and `PrefixStore`, and for
/// [`file`](Self::file) and [`hash`](Self::hash) `FileStore` and `HashStore`. Rank 0 serves the store of
/// a job, which ends with it. The store waits for nobody: a process can connect at any time.
/// [`ProcessGroup::with_store`](crate::distributed::ProcessGroup::with_store) makes a group of some of them.
///
/// While a [`get`](Self::get) waits or a group is being made, other uses of the store in the same process block. To
/// avoid that, [`check`](Self::check) first, or wait on a store made with [`try_clone`](Self::try_clone).
///
/// ```
/// use std::time::Duration;
/// use tch_parallel::distributed::Store;
///
/// let timeout = Duration::from_secs(60);
/// let store = Store::from_env(timeout)?;
/// let server = store.with_prefix("parameter-server")?;
/// server.set("version", b"1")?;
/// assert_eq!(store.get("parameter-server/version", timeout)?, b"1");
/// assert_eq!(store.add("steps", 2)?, 2);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// Every operation returns [`Error::Rendezvous`] if rank 0 has ended, or the launcher if that serves the store.
#[derive(Clone)]
#[doc(alias("TCPStore", "PrefixStore", "FileStore", "HashStore"))]
pub struct Store {
    engine: Arc<c10d_sys::Store>,
    /// This process's first connection, which on rank 0 serves all others: clones are clients.
    pub(super) first: Arc<c10d_sys::Store>,
    origin: Arc<Origin>,
    /// The prefix of every key, for messages.
    prefix: String,
}

impl Store {
    /// The same store, with `prefix/` before every key. `dist.PrefixStore`.
    pub fn with_prefix(&self, prefix: &str) -> Result<Store> {
        let engine = self.engine.with_prefix(prefix);
        let engine = engine.map_err(|error| self.failed("prefix", prefix, &error))?;
        let prefix = format!("{}{prefix}/", self.prefix);
        Ok(Store { engine: Arc::new(engine), prefix, ..self.clone() })
    }

    /// The same store over its own connection: threads with one each do not block each other. `store.clone()`.
    pub fn try_clone(&self) -> Result<Store> {
        let engine = self.engine.try_clone();
        let engine = engine.map_err(|error| self.failed("connect again to", "", &error))?;
        Ok(Store { engine: Arc::new(engine), ..self.clone() })
    }

    /// Sets a key, which wakes everyone waiting for it. Like [`append`](Self::append) and
    /// [`multi_set`](Self::multi_set), it does not wait until the store has done so. `store.set`.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        self.engine.set(key, value).map_err(|error| self.failed("set", key, &error))
    }

    /// The value of a key, once it is set. `store.get`.
    ///
    /// # Errors
    /// Those of [every operation](Self#errors), and [`Error::Rendezvous`] if the key is not set within `timeout`.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let value = self.engine.get(key, timeout.min(LONGEST_TIMEOUT));
        value.map_err(|error| self.not_all_set("get", &[key], timeout, &error))
    }

    /// Appends to a key's value, which is empty at first. `store.append`.
    pub fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        self.engine.append(key, value).map_err(|error| self.failed("append to", key, &error))
    }

    /// The values of these keys, once all are set, in one request. `store.multi_get`.
    ///
    /// # Errors
    /// Those of [`wait`](Self::wait).
    pub fn multi_get<S: AsRef<str>>(&self, keys: &[S], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let values = self.engine.multi_get(keys, timeout.min(LONGEST_TIMEOUT));
        values.map_err(|error| self.not_all_set("get", keys, timeout, &error))
    }

    /// Sets each of these keys to the value beside it. `store.multi_set`.
    pub fn multi_set<S: AsRef<str>, V: AsRef<[u8]>>(&self, pairs: &[(S, V)]) -> Result<()> {
        self.engine.multi_set(pairs).map_err(|error| {
            let keys: Vec<_> = pairs.iter().map(|(key, _)| key.as_ref()).collect();
            self.failed("set", &keys.join(", "), &error)
        })
    }

    /// Returns once all of these keys are set. `store.wait`.
    ///
    /// # Errors
    /// Those of [`get`](Self::get). The message names the keys that are not set.
    pub fn wait<S: AsRef<str>>(&self, keys: &[S], timeout: Duration) -> Result<()> {
        let all_set = self.engine.wait(keys, timeout.min(LONGEST_TIMEOUT));
        all_set.map_err(|error| self.not_all_set("wait for", keys, timeout, &error))
    }

    /// Sets a key to `desired` if its value is `expected`, or if it is not set and `expected` is empty, and returns the
    /// value that it has then, or `expected` if it is not set. `store.compare_set`.
    pub fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let value = self.engine.compare_set(key, expected, desired);
        value.map_err(|error| self.failed("compare and set", key, &error))
    }

    /// Appends a value to a queue, which is separate from the key of that name; not in a file. `store.queue_push`.
    pub fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        self.engine.queue_push(key, value).map_err(|error| self.failed("append to", key, &error))
    }

    /// Removes and returns a queue's first value, once there is one; no other process gets it. `store.queue_pop`; with
    /// [`Duration::ZERO`], `block=False`.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let value = self.engine.queue_pop(key, timeout.min(LONGEST_TIMEOUT));
        value.map_err(|error| self.not_all_set("take from", &[key], timeout, &error))
    }

    /// How many values a queue has. `store.queue_len`.
    pub fn queue_len(&self, key: &str) -> Result<i64> {
        self.engine.queue_len(key).map_err(|error| self.failed("count the values of", key, &error))
    }

    /// Deletes a key, and returns whether it was set. `store.delete_key`.
    pub fn delete_key(&self, key: &str) -> Result<bool> {
        self.engine.delete_key(key).map_err(|error| self.failed("delete", key, &error))
    }

    /// How many keys are set, whatever their prefix. The store and the groups have keys of their own. `store.num_keys`.
    pub fn num_keys(&self) -> Result<usize> {
        self.engine.num_keys().map_err(|error| self.failed("count the keys of", "", &error))
    }

    /// Whether the key is set; does not wait. `store.check`.
    pub fn check(&self, key: &str) -> Result<bool> {
        self.engine.check(key).map_err(|error| self.failed("look for", key, &error))
    }

    /// Adds to a counter, which starts at zero, and gives its new value. `store.add`.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64> {
        self.engine.add(key, amount).map_err(|error| self.failed("add to", key, &error))
    }

    pub(crate) fn engine(&self) -> &Arc<c10d_sys::Store> {
        &self.engine
    }

    /// Whether this process serves it, without a job.
    pub(crate) fn is_master(&self) -> bool {
        self.origin.is_master
    }

    /// The place of this process in the job; `None` without a launcher.
    pub(crate) fn env(&self) -> Option<&Env> {
        self.origin.env.as_ref()
    }

    pub(crate) fn gloo_address(&self) -> Result<GlooAddress> {
        match (self.env(), self.origin.network) {
            (Some(env), _) => rendezvous::gloo_address(|| rendezvous::master(env, NAMED)),
            (None, Some(network)) => rendezvous::gloo_address(|| Ok(network)),
            (None, None) => Ok(GlooAddress::Host("127.0.0.1".into())),
        }
    }

    /// After a timeout, names the keys that nobody has set; libtorch's own error names those that are set, too.
    fn not_all_set<S: AsRef<str>>(
        &self,
        operation: &str,
        keys: &[S],
        timeout: Duration,
        error: &c10d_sys::Error,
    ) -> Error {
        let is_over = error.kind() == ErrorKind::Timeout;
        // After a timeout the server answers; otherwise all keys are named. A queue is no key.
        let is_set = |k: &&str| keys.len() > 1 && is_over && self.engine.check(k).unwrap_or(false);
        let missing: Vec<_> = keys.iter().map(S::as_ref).filter(|key| !is_set(key)).collect();
        let missing = missing.join(", ");
        if is_over {
            return self.error(operation, &missing, format!("timed out after {timeout:?}"));
        }
        self.failed(operation, &missing, error)
    }

    fn failed(&self, operation: &str, key: &str, error: &c10d_sys::Error) -> Error {
        let mut message = error.message().to_owned();
        if may_be_anothers_fault(error) {
            // A network may be slow.
            let is_slow = error.kind() == ErrorKind::Timeout;
            let what = if is_slow { "has not answered" } else { "has ended" };
            message = format!("{}, which serves the store, {what} ({message})", self.origin.keeper);
            first_fault::remember(|| Fault::Another(Some(message.clone())));
        }
        self.error(operation, key, message)
    }

    fn error(&self, operation: &str, key: &str, message: String) -> Error {
        let (rank, world_size) = self.env().map_or((0, 1), |env| (env.rank, env.world_size));
        let operation = match format!("{}{key}", self.prefix) {
            key if key.is_empty() => format!("{operation} the store"),
            key => format!("{operation} {key} in the store"),
        };
        Error::Rendezvous { rank, world_size, operation, message }
    }
}

/// A hash, the same in all processes of a program, in place of what would be too long for a key or a value.
pub(crate) fn digest(value: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

debug_parts!(Store, self, prefix: self.prefix);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_not_answered_in_time_has_not_therefore_ended() {
        let store = Store::from_env(Duration::from_secs(60)).unwrap();
        let message = |kind| {
            store.failed("set", "key", &c10d_sys::Error::new(kind, "what recv said")).to_string()
        };
        assert!(message(ErrorKind::Connection).contains("the store, has ended (what recv"));
        assert!(message(ErrorKind::Timeout).contains("the store, has not answered (what recv"));
    }
}
