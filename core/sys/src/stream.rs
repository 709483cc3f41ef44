//! Streams and events of CUDA devices, without a policy.

use crate::error::{check, created, written};
use crate::profiler::record_function;
use crate::{Result, arguments::pointer, arguments::pointers, device::cuda, ffi, owned::Owned};
use std::{marker::PhantomData, time::Duration};
use tch::Tensor;

/// A queue of work on a CUDA device: `torch.cuda.Stream`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(ffi::Stream);

impl Stream {
    /// `torch.cuda.Stream(device)`: one of the 32 side streams of the device, in turn.
    pub fn from_pool(device: usize) -> Result<Self> {
        written(|out| ffi::c10d_stream_from_pool(cuda(device), out)).map(Stream)
    }

    /// `torch.cuda.current_stream(device)`, of this thread.
    pub fn current(device: usize) -> Result<Self> {
        written(|out| ffi::c10d_current_stream(cuda(device), out)).map(Stream)
    }

    /// `with torch.cuda.stream(self)`: until the guard is dropped, this thread queues its work for
    /// the stream's device here. The current device stays.
    pub fn guard(self) -> Result<StreamGuard> {
        let previous = written(|out| ffi::c10d_exchange_stream(self.0, out))?;
        Ok(StreamGuard { previous: Stream(previous), of_this_thread: PhantomData })
    }

    /// `self.wait_stream(other)`: later work here begins when what `other` has by now is done. The host does not wait.
    pub fn wait_stream(self, other: Stream) -> Result<()> {
        check(ffi::c10d_event_block(&Event::record(other, false)?.0, self.0))
    }

    /// `tensor.record_stream(self)`: the tensor, allocated on another stream, is used here as well, so
    /// its memory is free again only after what this stream has by then.
    pub fn record(self, tensor: &Tensor) -> Result<()> {
        check(ffi::c10d_record_stream(pointer(tensor), self.0))
    }
}

/// Restores this thread's previous stream; see [`Stream::guard`].
#[derive(Debug)]
#[must_use = "the stream is current only while the guard lives"]
pub struct StreamGuard {
    previous: Stream,
    /// The current stream is per thread.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        // It was current before, so setting it cannot fail.
        let _ = written(|out| ffi::c10d_exchange_stream(self.previous.0, out));
    }
}

/// A place in a stream: `torch.cuda.Event`.
#[derive(Debug)]
pub struct Event(Owned<ffi::Event>);

// SAFETY: an event is a handle of CUDA's runtime, which any thread may use.
unsafe impl Send for Event {}

impl Event {
    /// `torch.cuda.Event(enable_timing=timing)`, recorded on `stream`.
    pub fn record(stream: Stream, timing: bool) -> Result<Self> {
        created(|out| ffi::c10d_event_new(stream.0, timing, out)).map(Event)
    }

    /// Whether the stream has come this far.
    pub fn query(&self) -> Result<bool> {
        written(|out| ffi::c10d_event_query(&self.0, out))
    }

    /// Waits until the stream has come this far.
    pub fn synchronize(&self) -> Result<()> {
        check(ffi::c10d_event_synchronize(&self.0))
    }

    /// `self.elapsed_time(end)`; both must have been recorded with `timing`, and reached.
    pub fn elapsed_time(&self, end: &Event) -> Result<Duration> {
        let milliseconds = written(|out| ffi::c10d_event_elapsed(&self.0, &end.0, out))?;
        Ok(Duration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_default())
    }
}

/// The place in a device's stream at which these leaves have got their gradients: the end of the
/// device's part of a backward pass.
#[derive(Debug)]
pub struct LastGradient {
    event: Event,
    watched: Watched,
}

/// Leaves whose hooks record an event.
#[derive(Debug)]
struct Watched(Vec<Tensor>);

impl LastGradient {
    /// From now on, each gradient that one of the leaves gets is the last so far.
    ///
    /// A leaf has room for one hook of this kind, so one that has another is an error.
    pub fn watch(leaves: &[Tensor], device: usize) -> Result<Self> {
        let (watched, device) = (pointers(leaves), cuda(device));
        let event = created(|out| ffi::c10d_event_after_gradients(watched.list(), device, out))?;
        let watched = Watched(leaves.iter().map(Tensor::shallow_clone).collect());
        Ok(LastGradient { event: Event(event), watched })
    }

    /// The place, with timing, after the pass. If no leaf has got a gradient, the event has no time.
    pub fn event(self) -> Event {
        drop(self.watched);
        self.event
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It can only fail if one of them is no leaf, and then it has no hook.
        let _ = check(ffi::c10d_forget_gradients(pointers(&self.0).list()));
    }
}

/// Calls `wait`, in which the host waits for a device, within a range of the profiler's trace.
/// [`count_synchronizations`](crate::profiler::count_synchronizations) counts it.
pub fn waiting<R>(wait: impl FnOnce() -> R) -> Result<R> {
    // profiler.cpp knows it by this name.
    record_function("wait for the device", wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretended_cuda::{pretend, take_calls};

    #[test]
    fn a_device_that_cannot_exist_is_an_error() {
        assert!(Stream::current(300).is_err());
        assert!(Stream::from_pool(300).is_err());
    }

    #[test]
    fn a_stream_is_current_while_its_guard_lives() {
        if !pretend() {
            return;
        }
        let default = Stream::current(1).unwrap();
        let side = Stream(ffi::Stream { id: 7, device: 1 });
        let guard = side.guard().unwrap();
        assert_eq!(Stream::current(1).unwrap(), side);
        assert_ne!(Stream::current(2).unwrap(), side);
        drop(guard);
        assert_eq!(Stream::current(1).unwrap(), default);
    }

    #[test]
    fn a_devices_part_of_a_backward_pass_ends_with_its_last_gradient() {
        if !pretend() {
            return;
        }
        let leaves = [2.0f32, 3.0].map(|number| Tensor::from(number).set_requires_grad(true));
        let pass = || (&leaves[0] * &leaves[1]).backward();
        take_calls();
        let last = LastGradient::watch(&leaves, 1).unwrap();
        pass();
        assert_eq!(take_calls().events, leaves.len());
        // There is no room for a second hook, and the first one stays.
        let error = LastGradient::watch(&leaves[1..], 1).unwrap_err();
        assert!(error.message().contains("a hook already"), "{error:?}");
        pass();
        assert_eq!(take_calls().events, leaves.len());
        let end = last.event();
        assert!(end.query().unwrap());
        pass();
        assert_eq!(take_calls().events, 0);
    }
}
