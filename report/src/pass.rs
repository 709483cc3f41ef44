//! One pass over a data set: its batches, how long they take, and what each step measures.

use crate::in_flight::InFlight;
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, iter::Take, rc::Rc, time::Duration, time::Instant};
use tch::{Device, Tensor};
use tch_parallel::distributed::{AverageMeter, ProcessGroup};
use tch_parallel::{Event, Result, Tensors, data::Epoch};

/// What the steps of a pass have measured: the meters of ImageNet's main.py, in pytorch/examples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<AverageMeter>", try_from = "Vec<AverageMeter>")]
pub struct Meters<const N: usize> {
    /// Seconds of a step, the wait for its batch included.
    ///
    /// main.py reads the clock after every step. On a GPU the host is ahead of the device there, and only a step that
    /// waits takes its time, and that of all before it. So the time from one such step to the next is divided by the
    /// number of steps, as in Apex's main_amp.py; the last value is that mean.
    pub batch_time: AverageMeter,
    /// Seconds for which a step waited for its batch, likewise.
    pub data_time: AverageMeter,
    /// The numbers that [`Pass::step`] gets, weighted with the samples of their batches.
    pub numbers: [AverageMeter; N],
}

/// A pass over a data set, such as an evaluation. [`Run`](crate::Run) uses one for each epoch.
///
/// ```no_run
/// # use tch::{Device, nn::ModuleT};
/// # use tch_parallel::data::{DataLoader, Mnist};
/// # use report::Pass;
/// # fn evaluate(model: &impl ModuleT, loader: &DataLoader<Mnist>) -> anyhow::Result<f64> {
/// let mut pass = Pass::default();
/// for batch in pass.batches(loader.epoch(0)?, Device::Cpu) {
///     let (images, labels) = batch?;
///     let accuracy = model.forward_t(&images, false).accuracy_for_logits(&labels);
///     pass.step([&accuracy], labels.size()[0])?;
/// }
/// let [accuracy] = pass.meters().numbers;
/// Ok(accuracy.avg())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Pass<const N: usize> {
    meters: Meters<N>,
    /// With the samples of each step.
    in_flight: InFlight<usize, N>,
    clock: Rc<RefCell<Clock>>,
    /// The steps that are done, and all steps of the pass.
    pub(crate) done: usize,
    pub(crate) steps: usize,
    every: Option<usize>,
    max_steps: Option<usize>,
}

/// Times of the steps since it was last read.
#[derive(Debug)]
struct Clock {
    since: Instant,
    waited: Duration,
    steps: usize,
    /// How long the current batch was waited for.
    fetch: Duration,
    /// When the current batch had arrived.
    begun: Option<Event>,
}

impl Default for Clock {
    fn default() -> Self {
        let [waited, fetch] = [Duration::ZERO; 2];
        Clock { since: Instant::now(), waited, steps: 0, fetch, begun: None }
    }
}

impl<const N: usize> Default for Meters<N> {
    fn default() -> Self {
        let [batch_time, data_time] = [AverageMeter::default(); 2];
        Meters { batch_time, data_time, numbers: [AverageMeter::default(); N] }
    }
}

impl<const N: usize> Pass<N> {
    /// A pass in which a line is due at the first and then every `every` steps, and of at most `max_steps`.
    pub fn new(every: Option<usize>, max_steps: Option<usize>) -> Self {
        Pass { every, max_steps, ..Pass::default() }
    }

    /// Goes on where a pass was interrupted.
    pub(crate) fn resume(self, done: usize, meters: Meters<N>) -> Self {
        Pass { done, meters, ..self }
    }

    /// Begins the pass, or goes on with it: these batches, on this device. Not for an iterable data set, whose
    /// length is unknown.
    pub fn batches<'l, B>(&mut self, epoch: Epoch<'l, B>, device: Device) -> Batches<'l, B>
    where
        B: Tensors + Send + 'static,
    {
        let batches = epoch.to(device);
        self.steps = self.done + batches.size_hint().0;
        self.steps = self.max_steps.map_or(self.steps, |most| self.steps.min(most));
        self.clock.replace(Clock::default());
        let batches = batches.take(self.steps.saturating_sub(self.done));
        Batches { batches, clock: Rc::clone(&self.clock), device }
    }

    /// Counts a step, with what it has measured and the size of this rank's batch. Returns whether a line is due, for
    /// which all numbers have arrived. Fails for a tensor that does not hold one number, and if the device's work has.
    pub fn step(&mut self, numbers: [&Tensor; N], samples: i64) -> Result<bool> {
        let is_due = self.push(numbers, samples)?;
        self.arrived(is_due || self.done == self.steps)?;
        Ok(is_due)
    }

    pub(crate) fn push(&mut self, numbers: [&Tensor; N], samples: i64) -> Result<bool> {
        let is_due = self.every.is_some_and(|every| self.done.is_multiple_of(every));
        self.in_flight.push(samples as usize, numbers)?;
        self.done += 1;
        self.clock.borrow_mut().steps += 1;
        Ok(is_due)
    }

    /// The numbers that have arrived and are in the meters now, with their steps' samples; all of them if it `waits`.
    pub(crate) fn arrived(&mut self, waits: bool) -> Result<Vec<(usize, [f64; N])>> {
        let arrived = self.in_flight.arrived(waits)?;
        for (samples, numbers) in &arrived {
            for (meter, number) in self.meters.numbers.iter_mut().zip(numbers) {
                meter.update(*number, *samples);
            }
        }
        let steps = self.clock.borrow().steps;
        if waits && steps > 0 {
            let Clock { since, waited, .. } = self.clock.take();
            self.meters.batch_time.update(since.elapsed().as_secs_f64() / steps as f64, steps);
            self.meters.data_time.update(waited.as_secs_f64() / steps as f64, steps);
        }
        Ok(arrived)
    }

    /// When the batch of the current step arrived.
    pub(crate) fn begun(&self) -> Option<Event> {
        self.clock.borrow_mut().begun.take()
    }

    /// How long the current step waited for its batch.
    pub fn fetch(&self) -> Duration {
        self.clock.borrow().fetch
    }

    /// What has been measured, by the steps whose numbers have arrived.
    pub fn meters(&self) -> &Meters<N> {
        &self.meters
    }

    /// How many steps are done, and how many the pass has.
    pub fn position(&self) -> (usize, usize) {
        (self.done, self.steps)
    }

    /// The means over the samples of all ranks. A collective.
    pub fn all_reduce(&self, group: &ProcessGroup) -> Result<[f64; N]> {
        let mut means = [0.0; N];
        for (mean, meter) in means.iter_mut().zip(&self.meters.numbers) {
            *mean = meter.all_reduce(group)?;
        }
        Ok(means)
    }
}

impl<const N: usize> From<Meters<N>> for Vec<AverageMeter> {
    fn from(Meters { batch_time, data_time, numbers }: Meters<N>) -> Self {
        [batch_time, data_time].into_iter().chain(numbers).collect()
    }
}

impl<const N: usize> TryFrom<Vec<AverageMeter>> for Meters<N> {
    type Error = String;

    fn try_from(meters: Vec<AverageMeter>) -> Result<Self, String> {
        let error = format!("expected {} meters", N + 2);
        let [batch_time, data_time, numbers @ ..] = meters.as_slice() else { return Err(error) };
        let numbers: [AverageMeter; N] = numbers.try_into().map_err(|_| error)?;
        Ok(Meters { batch_time: *batch_time, data_time: *data_time, numbers })
    }
}

/// The batches of a pass, see [`Pass::batches`].
#[derive(Debug)]
pub struct Batches<'l, B> {
    batches: Take<Epoch<'l, B>>,
    clock: Rc<RefCell<Clock>>,
    device: Device,
}

impl<B: Tensors + Send + 'static> Iterator for Batches<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let asked = Instant::now();
        let batch = self.batches.next()?;
        let mut clock = self.clock.borrow_mut();
        let fetch = asked.elapsed();
        clock.waited += fetch;
        clock.fetch = fetch;
        Some(batch.and_then(|batch| {
            clock.begun = Some(Event::record(self.device)?);
            Ok(batch)
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.batches.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch_parallel::data::{DataLoader, SequentialSampler, TensorDataset};

    fn loader(samples: i64, batch_size: usize) -> DataLoader<TensorDataset<Tensor>> {
        let numbers = Tensor::arange(samples, (tch::Kind::Float, Device::Cpu));
        DataLoader::new(TensorDataset::new(numbers).unwrap(), SequentialSampler, batch_size)
            .unwrap()
    }

    #[test]
    fn a_pass_weights_numbers_with_samples_says_when_a_line_is_due_and_ends_at_max_steps() {
        let loader = loader(7, 2);
        let mut pass = Pass::new(Some(2), None);
        let mut due = Vec::new();
        for batch in pass.batches(loader.epoch(0).unwrap(), Device::Cpu) {
            let batch = batch.unwrap();
            due.push(pass.step([&batch.mean(tch::Kind::Float)], batch.size()[0]).unwrap());
        }
        assert_eq!(due, [true, false, true, false]);
        assert_eq!(pass.position(), (4, 4));
        let Meters { batch_time, data_time, numbers: [mean] } = *pass.meters();
        assert_eq!((mean.val(), mean.avg()), (6.0, 3.0));
        assert!(data_time.avg() <= batch_time.avg(), "{batch_time:?} {data_time:?}");

        // A pass with `max_steps` ends early.
        let mut pass = Pass::<1>::new(None, Some(2));
        let batches = pass.batches(loader.epoch(0).unwrap(), Device::Cpu);
        assert_eq!((batches.size_hint().0, batches.count()), (2, 2));
    }

    #[test]
    fn the_time_from_line_to_line_is_divided_by_its_steps() {
        let mut pass = Pass::new(None, None);
        let number = Tensor::from(1.0);
        let mut steps = |steps, seconds, waited| {
            let mut clock = pass.clock.borrow_mut();
            clock.since -= Duration::from_secs(seconds);
            clock.waited = Duration::from_secs(waited);
            drop(clock);
            (0..steps).for_each(|_| assert!(!pass.push([&number], 1).unwrap()));
            pass.arrived(true).unwrap();
            pass.meters
        };
        let meters = steps(4, 400, 6);
        assert!((100.0..110.0).contains(&meters.batch_time.val()), "{meters:?}");
        assert_eq!(meters.data_time.val(), 1.5);
        // From then on the clock counts anew, and each step weighs the same in the mean.
        let meters = steps(1, 0, 6);
        assert!(meters.batch_time.val() < 40.0, "{meters:?}");
        assert!((80.0..100.0).contains(&meters.batch_time.avg()), "{meters:?}");
        assert_eq!(meters.data_time.avg(), 2.4);
    }

    #[test]
    fn meters_are_saved_and_loaded() {
        let mut meters = Meters::<2>::default();
        meters.numbers[1].update(0.5, 3);
        let saved = serde_json::to_string(&meters).unwrap();
        assert_eq!(serde_json::from_str::<Meters<2>>(&saved).unwrap(), meters);
        assert!(serde_json::from_str::<Meters<1>>(&saved).is_err());
    }
}
