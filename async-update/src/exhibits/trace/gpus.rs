//! Two GPUs, what each wants of the parameters, and the parameters that they share.

use serde::Serialize;

/// θ: two parameters, to show that everything happens to each of them separately.
pub type Theta = [f64; 2];

/// The learning rate: like all numbers here a small multiple of a power of two, so that an f64 holds
/// sums and products without rounding.
pub const ETA: f64 = 0.25;

/// Where everybody begins.
pub const THETA_A: Theta = [4.0, -2.0];

/// A GPU's part of the data: on it the loss is ½ h (θ − m)², summed over the parameters.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Gpu {
    /// As the article counts them.
    number: usize,
    /// How steep the loss is: its second derivative.
    h: f64,
    /// Where the loss is least.
    m: Theta,
}

/// The slow one.
pub const GPU1: Gpu = Gpu { number: 1, h: 2.0, m: [0.0, 1.0] };
pub const GPU2: Gpu = Gpu { number: 2, h: 1.0, m: [-2.0, 2.0] };

impl Gpu {
    pub fn gradient(self, theta: Theta) -> Theta {
        subtract(theta, self.m).map(|distance| self.h * distance)
    }

    /// The article's ΔP(θ): the step against the gradient.
    pub fn step(self, theta: Theta) -> Theta {
        self.gradient(theta).map(|gradient| -ETA * gradient)
    }
}

pub fn add(a: Theta, b: Theta) -> Theta {
    [a[0] + b[0], a[1] + b[1]]
}

pub fn subtract(a: Theta, b: Theta) -> Theta {
    [a[0] - b[0], a[1] - b[1]]
}

/// The parameters that GPUs read and change, and the story of how they did.
#[derive(Debug, Serialize)]
pub struct Shared {
    /// The versions that there have been: θ_a, θ_b …
    versions: Vec<Theta>,
    events: Vec<Event>,
}

/// What a GPU does: it reads the newest version, or adds its step and so makes the next one.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Event {
    gpu: Gpu,
    /// Which version it is, from 0.
    version: usize,
    /// Of a step, the version that it was made for.
    read: Option<usize>,
}

impl Shared {
    pub fn new(theta_a: Theta) -> Shared {
        Shared { versions: vec![theta_a], events: Vec::new() }
    }

    pub fn now(&self) -> Theta {
        self.versions[self.versions.len() - 1]
    }

    /// A GPU reads the parameters, and begins to compute its step.
    pub fn read(&mut self, gpu: Gpu) -> Event {
        let event = Event { gpu, version: self.versions.len() - 1, read: None };
        self.events.push(event);
        event
    }

    /// A GPU adds the step that it has computed since it read. Returns how many updates of others lie
    /// between the two: the staleness of its step.
    pub fn write(&mut self, Event { gpu, version: read, .. }: Event) -> usize {
        let version = self.versions.len();
        self.versions.push(add(self.now(), gpu.step(self.versions[read])));
        self.events.push(Event { gpu, version, read: Some(read) });
        version - 1 - read
    }
}
