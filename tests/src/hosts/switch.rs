//! An Ethernet switch with a TAP device at each port. `tc netem` could delay and lose frames too,
//! but many kernels lack it.

use crate::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, mem, thread};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Larger than any frame: the devices do not merge segments.
const FRAME: usize = 2048;

/// What begins the address of each host. The last byte is its number.
const PREFIX: [u8; 5] = [0x02, 0, 0, 0, 0];

/// What happens to the frames that a host sends. By default, they arrive at once.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Conditions {
    pub delay: Duration,
    pub loss: f64,
    /// Decides which ones are lost.
    pub seed: u64,
}

/// How many frames did not simply arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub lost: u64,
    pub delayed: u64,
}

/// The ports, one for each host.
#[derive(Default)]
pub struct Switch {
    ports: Arc<Vec<Port>>,
    new: Vec<SyncDevice>,
}

struct Port {
    device: SyncDevice,
    conditions: Mutex<(Conditions, StdRng)>,
    /// Nothing leaves or reaches the host.
    cut_off: AtomicBool,
    lost: AtomicU64,
    delayed: AtomicU64,
}

/// A frame, and when it arrives.
type Late = (Instant, Vec<u8>);

impl Switch {
    /// Adds a port, and returns the name of its device.
    pub(super) fn add_port(&mut self) -> Result<String> {
        let device = DeviceBuilder::new().layer(Layer::L2).enable(false).build_sync();
        let device = device.context("cannot create a TAP device")?;
        let name = device.name()?;
        self.new.push(device);
        Ok(name)
    }

    /// Forwards frames from now on, until the devices are gone: they end with their namespaces.
    pub(super) fn start(&mut self) -> Result<()> {
        self.ports = Arc::new(mem::take(&mut self.new).into_iter().map(Port::new).collect());
        for port in 0..self.ports.len() {
            let (sender, receiver) = channel();
            let ports = Arc::clone(&self.ports);
            thread::Builder::new().spawn(move || forward(&ports, port, &sender))?;
            let ports = Arc::clone(&self.ports);
            thread::Builder::new().spawn(move || deliver_late(&ports, port, &receiver))?;
        }
        Ok(())
    }

    /// What the network does from now on with all that a host sends.
    pub fn set_conditions(&self, host: usize, conditions: Conditions) {
        *self.ports[host].conditions() = (conditions, StdRng::seed_from_u64(conditions.seed));
    }

    /// Cuts a host off from the others, or connects it again. Its own interface stays up.
    pub fn cut_off(&self, host: usize, cut_off: bool) {
        self.ports[host].cut_off.store(cut_off, Ordering::Relaxed);
    }

    /// What the network has done so far.
    pub fn traffic(&self) -> Traffic {
        let total = |counter: fn(&Port) -> &AtomicU64| {
            self.ports.iter().map(|port| counter(port).load(Ordering::Relaxed)).sum()
        };
        Traffic { lost: total(|port| &port.lost), delayed: total(|port| &port.delayed) }
    }
}

impl Port {
    fn new(device: SyncDevice) -> Self {
        Self {
            device,
            conditions: Mutex::new((Conditions::default(), StdRng::seed_from_u64(0))),
            cut_off: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
        }
    }

    fn conditions(&self) -> MutexGuard<'_, (Conditions, StdRng)> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn address(host: usize) -> [u8; 6] {
    let [a, b, c, d, e] = PREFIX;
    [a, b, c, d, e, host as u8]
}

fn forward(ports: &[Port], from: usize, late: &Sender<Late>) {
    let port = &ports[from];
    let mut buffer = [0; FRAME];
    while let Ok(length) = receive(&port.device, &mut buffer) {
        let frame = &buffer[..length];
        let (delay, is_lost) = {
            let (conditions, rng) = &mut *port.conditions();
            (conditions.delay, rng.random_bool(conditions.loss))
        };
        if is_lost || port.cut_off.load(Ordering::Relaxed) {
            port.lost.fetch_add(1, Ordering::Relaxed);
        } else if delay > Duration::ZERO {
            port.delayed.fetch_add(1, Ordering::Relaxed);
            // The other thread ends only after this one.
            let _ = late.send((Instant::now() + delay, frame.to_vec()));
        } else {
            deliver(ports, from, frame);
        }
    }
}

/// A device that is down sends nothing; it may be up again later.
fn receive(device: &SyncDevice, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match device.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// Delivers frames in the order in which they were sent, each at its time.
fn deliver_late(ports: &[Port], from: usize, frames: &Receiver<Late>) {
    for (due, frame) in frames {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        deliver(ports, from, &frame);
    }
}

/// Delivers a frame to its receiver, or to all if it has no single one.
fn deliver(ports: &[Port], from: usize, frame: &[u8]) {
    let to = frame.get(5).map(|&host| usize::from(host)).filter(|_| frame.starts_with(&PREFIX));
    let is_for = |host: usize| host != from && to.is_none_or(|to| to == host);
    for (_, port) in ports.iter().enumerate().filter(|(host, _)| is_for(*host)) {
        if port.cut_off.load(Ordering::Relaxed) {
            port.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            // Fails while the receiver's interface is down.
            let _ = port.device.send(frame);
        }
    }
}
