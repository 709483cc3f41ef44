//! The learning rate, from step to step.

/// codertimo's `ScheduledOptim`, after "Attention is all you need": the rate grows in proportion to
/// the step, then falls with its root. He sets it before every step, so that the rate his optimizer
/// was made with, his flag `--lr`, is never used.
#[derive(Debug, Clone, Copy)]
pub struct WarmUp {
    /// The length of a position's vector: larger models go in smaller steps.
    pub hidden: i64,
    /// The step at which the rate is highest.
    pub steps: u64,
}

impl WarmUp {
    /// The rate of step number `step`, counted from 1.
    pub fn lr(&self, step: u64) -> f64 {
        let (step, warmup) = (step as f64, self.steps as f64);
        (self.hidden as f64).powf(-0.5) * step.powf(-0.5).min(warmup.powf(-1.5) * step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_codertimos_size_it_peaks_with_6_25e_4_at_step_10_000() {
        let schedule = WarmUp { hidden: 256, steps: 10_000 };
        for (step, expected) in
            [(1, 6.25e-8), (1_000, 6.25e-5), (10_000, 6.25e-4), (40_000, 3.125e-4)]
        {
            // A few roundings of an f64.
            assert!((schedule.lr(step) / expected - 1.0).abs() < 1e-14, "{step}");
        }
    }
}
