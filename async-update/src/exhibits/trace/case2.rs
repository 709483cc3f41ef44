//! Case 2: GPU2 makes four updates while GPU1 computes one.

use super::gpus::{GPU1, GPU2, Read, Shared, THETA_A, add, exact, introduction, subtract};

/// How often GPU2 goes around before GPU1 is done: θ_a, θ_b, θ_c, θ_d, θ_e.
const ROUNDS: usize = 4;

/// What is left when both have ended.
struct Ending {
    shared: Shared,
    /// What GPU1 has read.
    slow: Read,
    /// How stale GPU1's step was.
    staleness: usize,
}

// ANCHOR: case2
/// GPU2 goes from θ_a to θ_e, then θ_f = θ_e + ΔP1(θ_a).
fn asynchronous() -> Ending {
    let mut shared = Shared::new(THETA_A);
    let slow = shared.read(GPU1);
    for _ in 0..ROUNDS {
        let fast = shared.read(GPU2);
        shared.write(fast);
    }
    let staleness = shared.write(slow);
    Ending { shared, slow, staleness }
}
// ANCHOR_END: case2

/// What happens, and how far it is from what would have been right.
pub fn tell() -> String {
    let Ending { shared, slow, staleness } = asynchronous();
    let stale = GPU1.step(slow.theta);
    let theta_e = subtract(shared.now(), stale);
    let fresh = GPU1.step(theta_e);
    let text = [
        "Case 2: GPU2 is far faster.\n\n".to_owned(),
        introduction(),
        shared.story(),
        format!("\nGPU1's step was made for θ_a, and {staleness} updates later it is added to θ_e.\n\n"),
        format!("the step that it adds          ΔP1(θ_a) = {}\n", exact(stale)),
        format!("the one that would be right    ΔP1(θ_e) = {}\n", exact(fresh)),
        format!("so it ends at                       θ_f = {}\n", exact(shared.now())),
        format!("instead of               θ_e + ΔP1(θ_e) = {}\n\n", exact(add(theta_e, fresh))),
        "The old step goes on in a direction that was right a while ago: that is what the article calls\nsimilar to momentum. `async-update quadratic` measures how similar.\n"
            .to_owned(),
    ];
    text.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_gpus_step_is_four_updates_old() {
        let Ending { shared, slow, staleness } = asynchronous();
        assert_eq!(staleness, 4);
        assert_eq!(slow.theta, THETA_A);
        let theta_e = (0..ROUNDS).fold(THETA_A, |theta, _| add(theta, GPU2.step(theta)));
        assert_eq!(shared.now(), add(theta_e, GPU1.step(THETA_A)));
    }
}
