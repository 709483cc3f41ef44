//! The two stories: GPU1 is slower than GPU2, a little in case 1 and much in case 2.

use super::gpus::{ETA, GPU1, GPU2, Shared, THETA_A, Theta, add, subtract};
use super::optimizers;
use anyhow::Result;
use exhibit_kit::template::{self, found};
use minijinja::{Value, context, value::Serde};

/// Which of the stories.
#[derive(Debug, Clone, Copy, clap::Subcommand)]
pub enum Story {
    /// Both GPUs read θ_a, and make one update each.
    Case1,
    /// GPU2 makes four updates while GPU1 computes one.
    Case2,
}

impl Story {
    /// Tells the story, and what its result equals or how far it is from the right one.
    pub fn tell(self) -> Result<()> {
        match self {
            Story::Case1 => {
                let (shared, staleness) = case1();
                let together = synchronous();
                let half = subtract(together, THETA_A).map(|step| step / 2.0);
                let holes = context! {
                    together,
                    difference => subtract(shared.now(), together),
                    half_as_far => add(THETA_A, half),
                };
                tell(include_str!("case1.jinja"), &shared, staleness, holes)
            }
            Story::Case2 => {
                let (shared, staleness) = case2();
                let stale = GPU1.step(THETA_A);
                let theta_e = subtract(shared.now(), stale);
                let fresh = GPU1.step(theta_e);
                let holes = context! { stale, fresh, instead => add(theta_e, fresh) };
                tell(include_str!("case2.jinja"), &shared, staleness, holes)
            }
        }
    }
}

// ANCHOR: case1
/// θ_b = θ_a + ΔP2(θ_a), then θ_c = θ_b + ΔP1(θ_a). Returns how stale the last step was as well.
fn case1() -> (Shared, usize) {
    let mut shared = Shared::new(THETA_A);
    let slow = shared.read(GPU1);
    let fast = shared.read(GPU2);
    shared.write(fast);
    let staleness = shared.write(slow);
    (shared, staleness)
}

/// θ_a + [ΔP1(θ_a) + ΔP2(θ_a)]: everybody waits, then all steps are made at once.
fn synchronous() -> Theta {
    add(THETA_A, add(GPU1.step(THETA_A), GPU2.step(THETA_A)))
}
// ANCHOR_END: case1

// ANCHOR: case2
/// GPU2 goes from θ_a to θ_e, then θ_f = θ_e + ΔP1(θ_a). Returns how stale the last step was as well.
fn case2() -> (Shared, usize) {
    let mut shared = Shared::new(THETA_A);
    let slow = shared.read(GPU1);
    for _ in 0..4 {
        let fast = shared.read(GPU2);
        shared.write(fast);
    }
    let staleness = shared.write(slow);
    (shared, staleness)
}
// ANCHOR_END: case2

/// Prints a story: what both have in common, and what is its own.
fn tell(text: &str, shared: &Shared, staleness: usize, holes: Value) -> Result<()> {
    let mut environment = template::environment()?;
    environment.add_template("gpus.jinja", include_str!("gpus.jinja"))?;
    // All digits, of which there are few.
    environment.add_filter("exact", |Serde([x, y]): Serde<Theta>| format!("({x}, {y})"));
    environment.add_filter("rounded", optimizers::rounded);
    environment.add_function("sgd", |momentum, decay| found(optimizers::sgd(momentum, decay)));
    environment.add_function("adamw", |decay| found(optimizers::adamw(decay)));
    let common = context! {
        eta => ETA,
        gpus => Serde([GPU1, GPU2].map(|gpu| (gpu, gpu.step(THETA_A)))),
        shared => Serde(shared),
        staleness,
        end => shared.now(),
    };
    Ok(template::print(&environment, text, context! { ..common, ..holes })?)
}
