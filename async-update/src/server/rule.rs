//! What an update does to the server's θ.

use tch::Tensor;
use tch_parallel::Result;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// The worker sends a gradient, and θ ← θ − ηΔ.
    Gradient {
        lr: f64,
        /// Whether a gradient that others have overtaken counts for less: η divided by its
        /// staleness (Zhang 2016, "Staleness-aware Async-SGD").
        staleness_aware: bool,
    },
    /// The worker sends its own parameters x, and they and the server's come closer to each other:
    /// d = α(x − x̃), x̃ ← x̃ + d, and x ← x − d at the worker (elastic averaging, Zhang 2015).
    Elastic {
        /// How much of the distance each goes, ηρ in the paper.
        alpha: f64,
    },
}

impl Rule {
    /// Changes `theta`, and gives what the worker is to be sent, if that is anything.
    pub fn apply(
        self,
        theta: &mut Tensor,
        sent: &Tensor,
        staleness: usize,
    ) -> Result<Option<Tensor>> {
        // ANCHOR: apply
        match self {
            Rule::Gradient { lr, staleness_aware } => {
                let overtaken = if staleness_aware { staleness.max(1) } else { 1 };
                let step = sent * (lr / overtaken as f64);
                let _ = theta.f_sub_(&step)?;
                Ok(None)
            }
            Rule::Elastic { alpha } => {
                let distance = sent.f_sub(theta)?;
                let force = distance * alpha;
                let _ = theta.f_add_(&force)?;
                Ok(Some(force))
            }
        }
        // ANCHOR_END: apply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(rule: Rule, staleness: usize) -> (f64, Option<f64>) {
        let mut theta = Tensor::from_slice(&[10.0]);
        let reply = rule.apply(&mut theta, &Tensor::from_slice(&[4.0]), staleness).unwrap();
        let number = |tensor: Tensor| f64::try_from(tensor).unwrap();
        (number(theta), reply.map(number))
    }

    #[test]
    fn a_gradient_moves_theta_against_it_and_a_stale_one_by_less_if_that_is_wanted() {
        let rule = |staleness_aware| Rule::Gradient { lr: 0.5, staleness_aware };
        assert_eq!(applied(rule(false), 4), (8.0, None));
        let after = [0, 1, 2, 4].map(|staleness| applied(rule(true), staleness).0);
        assert_eq!(after, [8.0, 8.0, 9.0, 9.5]);
    }

    #[test]
    fn elastic_averaging_keeps_the_sum_of_both() {
        let (theta, force) = applied(Rule::Elastic { alpha: 0.25 }, 0);
        assert_eq!((theta, force), (8.5, Some(-1.5)));
        assert_eq!(theta + (4.0 - force.unwrap()), 10.0 + 4.0);
    }
}
