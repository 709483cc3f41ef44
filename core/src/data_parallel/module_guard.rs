//! A look at the original of a model that has replicas.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use super::replicate::lock;

/// The original module, which no forward pass uses as long as this lives: one of another thread
/// waits, one of the same thread is refused.
#[derive(Debug)]
pub struct ModuleGuard<'a, M> {
    module: MutexGuard<'a, M>,
    /// Who has the guard; a forward pass there would wait for itself.
    reader: &'a Mutex<Option<ThreadId>>,
}

impl<'a, M> ModuleGuard<'a, M> {
    pub(super) fn new(module: &'a Mutex<M>, reader: &'a Mutex<Option<ThreadId>>) -> Self {
        let module = lock(module);
        *lock(reader) = Some(thread::current().id());
        ModuleGuard { module, reader }
    }
}

impl<M> Deref for ModuleGuard<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<M> Drop for ModuleGuard<'_, M> {
    fn drop(&mut self) {
        // The fields, and so the module's lock, are released after this.
        *lock(self.reader) = None;
    }
}
