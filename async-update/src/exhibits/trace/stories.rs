//! The two stories: GPU1 is slower than GPU2, a little in case 1 and much in case 2.

use super::gpus::{GPU1, GPU2, Shared, THETA_A, Theta, add, exact, losses, subtract};
use super::optimizers;
use anyhow::{Result, ensure};

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

/// Tells case 1, and what it equals.
///
/// # Errors
/// If it does not equal that.
pub fn tell_case1() -> Result<()> {
    let (shared, staleness) = case1();
    let (theta_c, together) = (shared.now(), synchronous());
    ensure!(
        theta_c == together,
        "θ_c is {}, but one synchronous update gives {}; they must be equal, since every sum here is exact",
        exact(theta_c),
        exact(together)
    );
    let half = subtract(together, THETA_A).map(|step| step / 2.0);
    println!(
        "Case 1: GPU2 is a little faster.

{}
{}
GPU1's step was made for θ_a, and {staleness} update later it is added to θ_b.

asynchronous   θ_c = θ_b + ΔP1(θ_a)              = {}
synchronous    θ_a + [ΔP1(θ_a) + ΔP2(θ_a)]       = {}
difference                                         {}

Equal, digit by digit: an update that only adds does not ask in which order, nor where θ is.

The synchronous update adds the steps up. One that takes the mean of the gradients, as
DistributedDataParallel does, goes half as far with the same η: θ_a + ½ [ΔP1 + ΔP2] = {}.

With another optimizer, which gets the same gradients of θ_a, the two are not the same:
",
        losses(),
        shared.story(),
        exact(theta_c),
        exact(together),
        exact(subtract(theta_c, together)),
        exact(add(THETA_A, half)),
    );
    print!("{}", optimizers::compared()?);
    Ok(())
}

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

/// Tells case 2, and how far it is from what would have been right.
pub fn tell_case2() {
    let (shared, staleness) = case2();
    let stale = GPU1.step(THETA_A);
    let theta_e = subtract(shared.now(), stale);
    let fresh = GPU1.step(theta_e);
    println!(
        "Case 2: GPU2 is far faster.

{}
{}
GPU1's step was made for θ_a, and {staleness} updates later it is added to θ_e.

the step that it adds          ΔP1(θ_a) = {}
the one that would be right    ΔP1(θ_e) = {}
so it ends at                       θ_f = {}
instead of               θ_e + ΔP1(θ_e) = {}

The old step goes on in a direction that was right a while ago: that is what the article calls
similar to momentum. `async-update quadratic` measures how similar.",
        losses(),
        shared.story(),
        exact(stale),
        exact(fresh),
        exact(shared.now()),
        exact(add(theta_e, fresh)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asynchronous_ending_is_the_synchronous_one() {
        let (shared, staleness) = case1();
        assert_eq!(shared.now(), synchronous());
        assert_ne!(shared.now(), THETA_A);
        assert_eq!(staleness, 1);
    }

    #[test]
    fn the_slow_gpus_step_is_four_updates_old() {
        let (shared, staleness) = case2();
        assert_eq!(staleness, 4);
        let theta_e = (0..4).fold(THETA_A, |theta, _| add(theta, GPU2.step(theta)));
        assert_eq!(shared.now(), add(theta_e, GPU1.step(THETA_A)));
    }
}
