//! What an epoch has come to so far.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

#[derive(Debug, Default)]
pub struct Average {
    losses: f64,
    steps: u32,
    correct: i64,
    pairs: i64,
}

impl Average {
    /// `next` and `is_next` as in [`bert_loss`](crate::loss::bert_loss), on any device.
    pub fn update(&mut self, loss: f32, next: &Tensor, is_next: &Tensor) -> Result<()> {
        let chosen = next.argmax(-1, false).to_device(Device::Cpu);
        let correct = chosen.eq_tensor(&is_next.to_device(Device::Cpu)).sum(Kind::Int64);
        self.losses += f64::from(loss);
        self.steps += 1;
        self.correct += i64::try_from(correct)?;
        self.pairs += is_next.size()[0];
        Ok(())
    }

    /// The mean over the steps.
    pub fn loss(&self) -> f64 {
        self.losses / f64::from(self.steps)
    }

    /// How many percent of the pairs were judged right to follow or not to follow.
    pub fn accuracy(&self) -> f64 {
        100.0 * self.correct as f64 / self.pairs as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_averaged_over_steps_and_answers_over_pairs() {
        let next = Tensor::from_slice(&[0.9f32, 0.1, 0.2, 0.8]).view([2, 2]);
        let mut average = Average::default();
        average.update(1.0, &next, &Tensor::from_slice(&[0i64, 1])).unwrap();
        average.update(2.0, &next, &Tensor::from_slice(&[1i64, 1])).unwrap();
        assert_eq!((average.loss(), average.accuracy()), (1.5, 75.0));
    }
}
