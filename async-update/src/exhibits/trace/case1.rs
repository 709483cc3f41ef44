//! Case 1: both GPUs read θ_a, and each makes one update.

use super::gpus::{GPU1, GPU2, Shared, THETA_A, Theta, add, exact, introduction, subtract};
use super::optimizers;
use anyhow::{Result, ensure};

/// The parameters at the end, and how stale the last step was.
struct Ending {
    shared: Shared,
    staleness: usize,
}

// ANCHOR: case1
/// θ_b = θ_a + ΔP2(θ_a), then θ_c = θ_b + ΔP1(θ_a).
fn asynchronous() -> Ending {
    let mut shared = Shared::new(THETA_A);
    let slow = shared.read(GPU1);
    let fast = shared.read(GPU2);
    shared.write(fast);
    let staleness = shared.write(slow);
    Ending { shared, staleness }
}

/// θ_a + [ΔP1(θ_a) + ΔP2(θ_a)]: everybody waits, then all steps are made at once.
fn synchronous() -> Theta {
    add(THETA_A, add(GPU1.step(THETA_A), GPU2.step(THETA_A)))
}
// ANCHOR_END: case1

/// What happens, and what it equals.
///
/// # Errors
/// If it does not equal that.
pub fn tell() -> Result<String> {
    let Ending { shared, staleness } = asynchronous();
    let (theta_c, together) = (shared.now(), synchronous());
    ensure!(
        theta_c == together,
        "θ_c is {}, and one synchronous update gives {}: expected the same, for every sum here is exact",
        exact(theta_c),
        exact(together)
    );
    let mean = subtract(together, THETA_A).map(|step| step / 2.0);
    let text = [
        "Case 1: GPU2 is a little faster.\n\n".to_owned(),
        introduction(),
        shared.story(),
        format!("\nGPU1's step was made for θ_a, and {staleness} update later it is added to θ_b.\n\n"),
        format!("asynchronous   θ_c = θ_b + ΔP1(θ_a)              = {}\n", exact(theta_c)),
        format!("synchronous    θ_a + [ΔP1(θ_a) + ΔP2(θ_a)]       = {}\n", exact(together)),
        format!("difference                                         {}\n\n", exact(subtract(theta_c, together))),
        "Equal, digit by digit: an update that only adds does not ask in which order, nor where θ is.\n\n"
            .to_owned(),
        format!(
            "The synchronous update adds the steps up. One that takes the mean of the gradients, as\nDistributedDataParallel does, goes half as far with the same η: θ_a + ½ [ΔP1 + ΔP2] = {}.\n\n",
            exact(add(THETA_A, mean))
        ),
        optimizers::tell()?,
    ];
    Ok(text.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asynchronous_ending_is_the_synchronous_one() {
        let Ending { shared, staleness } = asynchronous();
        assert_eq!(shared.now(), synchronous());
        assert_ne!(shared.now(), THETA_A);
        assert_eq!(staleness, 1);
    }
}
