//! How a process gets a store.

use super::super::{env::Env, open_files, rendezvous};
use super::Store;
use crate::{Error, Result, check, distributed::fault::record};
use c10d_sys::LONGEST_TIMEOUT;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs::OpenOptions, path::Path, sync::Arc, time::Duration};

/// Where a store came from. It marks this process as a member of a job while the store or a group made with it exists,
/// and for good in an elastic job.
pub(super) struct Origin {
    /// This process's place in the job whose store it is.
    pub(super) env: Option<Env>,
    /// Whether this process serves a store without a job.
    pub(super) is_master: bool,
    /// Who keeps the keys, for messages.
    pub(super) keeper: String,
    /// For a store without a job: an address in the network of its processes, if others can connect.
    pub(super) network: Option<SocketAddr>,
}

/// Whether this process is a member of a job: it has only one rank.
static IS_MEMBER: AtomicBool = AtomicBool::new(false);

/// Whether it has ever been one.
static HAS_BEEN_MEMBER: AtomicBool = AtomicBool::new(false);

/// Fails if this process has joined its job before.
pub(crate) fn expect_no_member(operation: &'static str) -> Result<()> {
    let found = "called after a group or a store of the job was made";
    let expected =
        "called before any of them: a rank that replaces another would join the survivors' store";
    check(!HAS_BEEN_MEMBER.load(Ordering::Relaxed), operation, found, expected)
}

impl Drop for Origin {
    fn drop(&mut self) {
        if self.env.as_ref().is_some_and(|env| !env.is_elastic) {
            IS_MEMBER.store(false, Ordering::Relaxed);
        }
    }
}

impl Store {
    /// The store of the job that the environment describes ([`Env`]). Rank 0 starts to serve it; the others wait for
    /// that up to `timeout`. Without a launcher, it exists only in this process.
    ///
    /// # Errors
    /// - [`Error::Environment`]: the environment is incomplete or invalid.
    /// - [`Error::Argument`]: rank 0 may not open as many files as the job needs.
    /// - [`Error::Rendezvous`]: the port is taken, the host MASTER_ADDR did not resolve for a
    ///   minute, or for the timeout if that is shorter, rank 0 did not arrive within the timeout,
    ///   another process has the same rank, or this process already has a store of the job or was in
    ///   a group of [`elastic::run`](crate::elastic::run).
    pub fn from_env(timeout: Duration) -> Result<Store> {
        Self::of(Env::read()?, timeout)
    }

    /// The store of the job in which this process has this place.
    pub(crate) fn of(env: Option<Env>, timeout: Duration) -> Result<Store> {
        let Some(env) = env else {
            record::forget_dropped_groups();
            return Self::hash();
        };
        // In an elastic job, a process may leave a group before it has joined it. It stays a member for good, because
        // the others may by now have other addresses and ranks than its environment says.
        if IS_MEMBER.swap(true, Ordering::Relaxed) && !env.is_elastic {
            let message = "this process has already joined it; keep the group or the store, or a clone of it \
                           (inside elastic::run, use the group that it passes)";
            return Err(rendezvous::failed(&env, "join the job".into(), message));
        }
        HAS_BEEN_MEMBER.store(true, Ordering::Relaxed);
        let keeper = String::from(if env.agent_store { "the launcher" } else { "rank 0" });
        let origin = Origin { env: Some(env.clone()), is_master: false, keeper, network: None };
        record::forget_dropped_groups();
        if env.rank == 0 {
            open_files::expect_enough(env.world_size)?;
        }
        Ok(Self::new(rendezvous::store(&env, timeout.min(LONGEST_TIMEOUT))?, origin))
    }

    /// The store at a host and port. The process with `is_master` serves it until that process ends; the
    /// others wait for it up to `timeout`. `dist.TCPStore(host_name, port, is_master=…, timeout=…)`, except
    /// that it does not wait for all workers, and listens only on the host's address.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tch_parallel::distributed::Store;
    ///
    /// # let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    /// let timeout = Duration::from_secs(60);
    /// let _server = Store::tcp("127.0.0.1", port, true, timeout)?;
    /// let client = Store::tcp("127.0.0.1", port, false, timeout)?;
    /// client.multi_set(&[("first", "1"), ("second", "2")])?;
    /// client.append("first", b"0")?;
    /// assert_eq!(client.multi_get(&["second", "first"], timeout)?, [&b"2"[..], b"10"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Rendezvous`], with rank 0 of 1 because this store knows no ranks: the host name does not
    /// resolve, the port is taken, or no process serves the store within `timeout`.
    pub fn tcp(host_name: &str, port: u16, is_master: bool, timeout: Duration) -> Result<Store> {
        let what = if is_master { "serve" } else { "reach" };
        let served = rendezvous::tcp(host_name, port, is_master, timeout.min(LONGEST_TIMEOUT));
        let (engine, server) = served.map_err(|error| {
            let operation = format!("{what} a store at {host_name}:{port}");
            Error::Rendezvous { rank: 0, world_size: 1, operation, message: error.to_string() }
        })?;
        let keeper = format!("the process at {server}");
        Ok(Self::new(engine, Origin { env: None, is_master, keeper, network: Some(server) }))
    }

    /// A store in a file that all processes can write, also on NFS. `dist.FileStore(file_name, world_size)`.
    ///
    /// The last of `world_size` processes to drop the store removes the file; with `None`, the file stays. Each group
    /// made with the store counts as one more process, so make groups only when all processes have opened the store.
    /// The keys that a killed job has left are still set: remove the file, or choose another. If the file is removed
    /// during use, operations wait for it for minutes, whatever their timeouts.
    ///
    /// ```
    /// use tch_parallel::distributed::Store;
    ///
    /// let path = std::env::temp_dir().join(format!("store-{}", std::process::id()));
    /// let store = Store::file(&path, Some(1))?;
    /// assert_eq!(store.add("steps", 2)?, 2);
    /// drop(store);
    /// assert!(!path.exists());
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`]: the file cannot be written.
    pub fn file(file_name: impl AsRef<Path>, world_size: Option<usize>) -> Result<Store> {
        let path = file_name.as_ref();
        // libtorch would wait for minutes for a directory that is missing.
        OpenOptions::new().create(true).append(true).open(path).map_err(Error::io("open", path))?;
        let engine = c10d_sys::Store::file(path, world_size).map_err(Error::engine("FileStore"))?;
        let keeper = format!("the file {}", path.display());
        let network = Some((Ipv4Addr::LOCALHOST, 0).into());
        Ok(Self::new(engine, Origin { env: None, is_master: false, keeper, network }))
    }

    /// A store within this process, for its threads. `dist.HashStore()`.
    pub fn hash() -> Result<Store> {
        let engine = c10d_sys::Store::hash().map_err(Error::engine("HashStore"))?;
        let keeper = "this process".into();
        Ok(Self::new(engine, Origin { env: None, is_master: false, keeper, network: None }))
    }

    fn new(engine: c10d_sys::Store, origin: Origin) -> Store {
        let engine = Arc::new(engine);
        let (first, origin) = (Arc::clone(&engine), Arc::new(origin));
        Store { engine, first, origin, prefix: String::new() }
    }
}
