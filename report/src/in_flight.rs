//! What a step measured, on its way from the device.

use std::collections::VecDeque;
use tch::{Kind, Tensor};
use tch_parallel::{HostCopy, Result};

/// The numbers of steps on their way to the host, oldest first: `N` of each step, and `S`, what the host knows of it.
///
/// A loop that reads the loss of every step makes a GPU wait for the host, so Apex's `main_amp.py` reads it only where
/// it prints a line. Here no step is left out: the numbers are copied without waiting, and come some steps later.
#[derive(Debug, Default)]
pub(crate) struct InFlight<S, const N: usize> {
    steps: VecDeque<(S, HostCopy)>,
}

impl<S, const N: usize> InFlight<S, N> {
    /// Sends off the numbers of a step: tensors of one element, on one device.
    pub(crate) fn push(&mut self, step: S, numbers: [&Tensor; N]) -> Result<()> {
        // As f64, which every loss and every count fits.
        let number = |tensor: &Tensor| tensor.f_detach()?.f_to_kind(Kind::Double)?.f_reshape([1]);
        let numbers = numbers.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
        self.steps.push_back((step, HostCopy::start(&Tensor::f_cat(&numbers, 0)?)?));
        Ok(())
    }

    /// The steps whose numbers have arrived, oldest first; if it `waits`, as before printing or saving, all steps.
    pub(crate) fn arrived(&mut self, waits: bool) -> Result<Vec<(S, [f64; N])>> {
        if let (true, Some((_, last))) = (waits, self.steps.back()) {
            last.arrival().synchronize()?;
        }
        let mut arrived = Vec::new();
        while let Some((step, copy)) = self.steps.pop_front() {
            if !copy.arrival().query()? {
                self.steps.push_front((step, copy));
                break;
            }
            let mut numbers = [0.0; N];
            copy.wait()?.f_copy_data(&mut numbers, N)?;
            arrived.push((step, numbers));
        }
        Ok(arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, kind::FLOAT_CPU};
    use tch_parallel::profiler::count_synchronizations;

    #[test]
    fn numbers_arrive_in_order_and_to_the_last_bit() {
        let mut in_flight = InFlight::default();
        let device = Device::cuda_if_available();
        for step in 0..3 {
            let loss = Tensor::from(0.1f32 * step as f32).to_device(device);
            let correct = Tensor::from(i64::from(step)).to_device(device);
            in_flight.push(step, [&loss.set_requires_grad(true), &correct]).unwrap();
        }
        let arrived = in_flight.arrived(true).unwrap();
        let expected = [0, 1, 2].map(|step| (step, [f64::from(0.1f32 * step as f32), step.into()]));
        assert_eq!(arrived, expected);
        assert!(in_flight.arrived(true).unwrap().is_empty());
    }

    /// One tensor, added to in place, as sums are.
    #[test]
    fn a_number_is_that_of_its_step() {
        let mut in_flight = InFlight::default();
        let mut sum = Tensor::zeros([1], (Kind::Double, Device::Cpu));
        for step in 0..2 {
            sum += 1.0;
            in_flight.push(step, [&sum]).unwrap();
        }
        assert_eq!(in_flight.arrived(true).unwrap(), [(0, [1.0]), (1, [2.0])]);
    }

    #[test]
    fn the_host_waits_where_it_is_told_to_and_once_for_all_steps() {
        let mut in_flight = InFlight::default();
        let loss = Tensor::ones([1], FLOAT_CPU);
        let waits = |in_flight: &mut InFlight<i32, 1>, waits| {
            count_synchronizations(|| {
                (0..3).for_each(|step| in_flight.push(step, [&loss]).unwrap());
                assert_eq!(in_flight.arrived(waits).unwrap().len(), 3);
            })
            .unwrap()
            .1
        };
        assert_eq!(waits(&mut in_flight, false), 0);
        assert_eq!(waits(&mut in_flight, true), 1);
    }

    #[test]
    fn what_is_not_one_number_is_refused() {
        let pair = Tensor::ones([2], FLOAT_CPU);
        assert!(InFlight::default().push(0, [&pair]).is_err());
    }
}
