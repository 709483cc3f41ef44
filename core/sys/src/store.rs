//! The key-value store at which ranks meet.

use crate::arguments::{c_rank, c_text, c_texts, milliseconds};
use crate::error::{check, created, written};
use crate::{Error, Result, ffi, ffi::Text, owned::Owned};
use std::{ffi::CString, net::SocketAddr, net::TcpListener, os::fd::IntoRawFd, path::Path};
use std::{os::unix::ffi::OsStrExt, ptr::null_mut, sync::Once, time::Duration};

/// A handle to a `c10d::Store`.
#[derive(Debug)]
pub struct Store(pub(crate) Owned<ffi::Store>);

// SAFETY: the handle owns a reference counted with atomics, and every store locks around each of its operations
// (TCPStore.hpp, activeOpLock_; HashStore.hpp, m_; FileStore.hpp, activeFileOpLock_; PrefixStore forwards).
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

/// Address and members of a TCP store; `c10d::TCPStoreOptions`.
#[derive(Debug)]
pub struct TcpStoreOptions {
    /// Where the server listens: what MASTER_ADDR stands for, and MASTER_PORT.
    pub server: SocketAddr,
    /// The number of ranks that connect. A Python server waits for all of them; ours does not.
    pub world_size: usize,
    /// The socket to serve on, which makes this process the server; `None` for a client.
    pub listener: Option<TcpListener>,
    /// How long to wait for the server.
    pub timeout: Duration,
}

impl Store {
    /// Serves a store over TCP, or connects to one; `c10d::TCPStore`.
    pub fn tcp(options: TcpStoreOptions) -> Result<Store> {
        initialize()?;
        let host = c_text(&host(options.server))?;
        // The server closes the descriptor when it ends.
        let fd = options.listener.map_or(-1, IntoRawFd::into_raw_fd);
        let (host, port) = (Text::new(&host), options.server.port());
        let timeout = milliseconds(options.timeout);
        // SAFETY: `fd` is given away or is -1.
        let handle = created(|out| unsafe {
            ffi::c10d_tcp_store_new(host, port, options.world_size, fd, timeout, out)
        })?;
        Ok(Store(handle))
    }

    /// A store within this process, for a world of one; `c10d::HashStore`.
    pub fn hash() -> Result<Store> {
        initialize()?;
        // SAFETY: the call writes a handle.
        created(|out| unsafe { ffi::c10d_hash_store_new(out) }).map(Store)
    }

    /// A store in a file, which the last of `world_size` processes removes; without a number it stays;
    /// `c10d::FileStore`.
    pub fn file(path: &Path, world_size: Option<usize>) -> Result<Store> {
        initialize()?;
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|error| Error::misuse(error.to_string()))?;
        let world_size = world_size.map_or(-1, c_rank);
        created(|out| ffi::c10d_file_store_new(Text::new(&path), world_size, out)).map(Store)
    }

    /// The same store, with `prefix/` before every key; `c10d::PrefixStore`.
    pub fn with_prefix(&self, prefix: &str) -> Result<Store> {
        let prefix = c_text(prefix)?;
        created(|out| ffi::c10d_prefix_store_new(Text::new(&prefix), &self.0, out)).map(Store)
    }

    /// The same store over its own connection, which does not wait for this one's operations; `c10d::Store::clone`.
    pub fn try_clone(&self) -> Result<Store> {
        created(|out| ffi::c10d_store_clone(&self.0, out)).map(Store)
    }

    /// Sets a key, which wakes everyone waiting for it.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        check(ffi::c10d_store_set(&self.0, Text::new(&c_text(key)?), value.into()))
    }

    /// Adds to the end of a key's value, which is empty at first.
    pub fn append(&self, key: &str, value: &[u8]) -> Result<()> {
        check(ffi::c10d_store_append(&self.0, Text::new(&c_text(key)?), value.into()))
    }

    /// The value of a key, once it is set; an error after `timeout`.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let (key, timeout) = (c_text(key)?, milliseconds(timeout));
        let key = Text::new(&key);
        bytes(|value, length| ffi::c10d_store_get(&self.0, key, timeout, value, length))
    }

    /// The values of several keys, once all are set; an error after `timeout`.
    pub fn multi_get<S: AsRef<str>>(&self, keys: &[S], timeout: Duration) -> Result<Vec<Vec<u8>>> {
        let (keys, timeout) = (c_texts(keys)?, milliseconds(timeout));
        let keys: Vec<_> = keys.iter().map(|key| Text::new(key)).collect();
        let mut lengths = vec![0; keys.len()];
        let (keys, into) = (keys.as_slice().into(), lengths.as_mut_ptr());
        // SAFETY: `into` has room for the lengths of as many values as there are keys.
        let joined = bytes(|values, length| unsafe {
            ffi::c10d_store_multi_get(&self.0, keys, timeout, into, values, length)
        })?;
        let mut rest = joined.into_iter();
        Ok(lengths.into_iter().map(|length| rest.by_ref().take(length).collect()).collect())
    }

    /// Sets several keys.
    pub fn multi_set<S: AsRef<str>, V: AsRef<[u8]>>(&self, pairs: &[(S, V)]) -> Result<()> {
        let keys = pairs.iter().map(|(key, _)| c_text(key.as_ref())).collect::<Result<Vec<_>>>()?;
        let keys: Vec<_> = keys.iter().map(|key| Text::new(key)).collect();
        let values: Vec<_> = pairs.iter().map(|(_, value)| value.as_ref().into()).collect();
        let (keys, values) = (keys.as_slice().into(), values.as_slice().into());
        check(ffi::c10d_store_multi_set(&self.0, keys, values))
    }

    /// Returns once all of the keys are set; an error after `timeout`.
    pub fn wait<S: AsRef<str>>(&self, keys: &[S], timeout: Duration) -> Result<()> {
        let (keys, timeout) = (c_texts(keys)?, milliseconds(timeout));
        let keys: Vec<_> = keys.iter().map(|key| Text::new(key)).collect();
        check(ffi::c10d_store_wait(&self.0, keys.as_slice().into(), timeout))
    }

    /// Sets a key to `desired` if its value is `expected`, or if it is not set and `expected` is
    /// empty. Returns the value afterwards, or `expected` if the key is not set.
    pub fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let (key, store) = (c_text(key)?, &self.0);
        let (key, expected, desired) = (Text::new(&key), expected.into(), desired.into());
        bytes(|value, length| {
            ffi::c10d_store_compare_set(store, key, expected, desired, value, length)
        })
    }

    /// Appends a value to a queue.
    pub fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
        check(ffi::c10d_store_queue_push(&self.0, Text::new(&c_text(key)?), value.into()))
    }

    /// Takes a queue's first value, once there is one; an error after `timeout`.
    pub fn queue_pop(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let (key, timeout) = (c_text(key)?, milliseconds(timeout));
        let key = Text::new(&key);
        bytes(|value, length| ffi::c10d_store_queue_pop(&self.0, key, timeout, value, length))
    }

    /// How many values a queue has.
    pub fn queue_len(&self, key: &str) -> Result<i64> {
        let key = c_text(key)?;
        written(|out| ffi::c10d_store_queue_len(&self.0, Text::new(&key), out))
    }

    /// Deletes a key, and returns whether it was set.
    pub fn delete_key(&self, key: &str) -> Result<bool> {
        let key = c_text(key)?;
        written(|out| ffi::c10d_store_delete_key(&self.0, Text::new(&key), out))
    }

    /// How many keys are set in the whole store, whatever the prefix.
    pub fn num_keys(&self) -> Result<usize> {
        let count = written(|out| ffi::c10d_store_num_keys(&self.0, out))?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// Whether the key is set.
    pub fn check(&self, key: &str) -> Result<bool> {
        let key = c_text(key)?;
        written(|out| ffi::c10d_store_check(&self.0, Text::new(&key), out))
    }

    /// Adds to a counter, which starts at zero, and returns its new value.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let key = c_text(key)?;
        written(|out| ffi::c10d_store_add(&self.0, Text::new(&key), amount, out))
    }
}

/// The address as libtorch takes it. An address of one network alone needs the interface as well.
fn host(server: SocketAddr) -> String {
    match server {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => server.ip().to_string(),
    }
}

/// The bytes that a call returns.
fn bytes(call: impl FnOnce(&mut *mut u8, &mut usize) -> ffi::Status) -> Result<Vec<u8>> {
    let (mut value, mut length) = (null_mut(), 0);
    check(call(&mut value, &mut length))?;
    // SAFETY: the call has succeeded, so `value` is an allocation of at least `length` initialised
    // bytes that is ours to free.
    unsafe {
        let bytes = std::slice::from_raw_parts(value, length).to_vec();
        ffi::c10d_free(value.cast());
        Ok(bytes)
    }
}

/// Called when a store is made, because everything in c10d requires one.
fn initialize() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    // SAFETY: sets two variables that no other thread reads before a store exists.
    ONCE.call_once(|| result = check(unsafe { ffi::c10d_initialize() }));
    result
}
