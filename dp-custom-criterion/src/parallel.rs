//! The model, wrapped as its method requires.

use crate::args::{Method, MethodArgs};
use crate::loss::{bert_loss, bert_means};
use crate::model::LanguageModel;
use anyhow::Result;
use std::time::Duration;
use tch::Tensor;
use tch::nn::{Path, VarStore};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{
    DataParallel, DataParallelCriterion, DataParallelModel, DataParallelOptions, Trace,
};
use tch_parallel::distributed::{
    ApexDistributedDataParallel, ApexOptions, DdpOptions, DistributedDataParallel, ProcessGroup,
};

/// Takes outputs and targets, both as pairs: of the next sentence, and of the masked words.
pub type Criterion = DataParallelCriterion<(Tensor, Tensor), (Tensor, Tensor)>;

/// One variant for each wrapper; the methods `data-parallel` and `output-device` share theirs.
#[derive(Debug)]
pub enum Parallel {
    DataParallel(DataParallel<LanguageModel>),
    CustomCriterion(DataParallelModel<LanguageModel>, Criterion),
    Ddp(DistributedDataParallel<LanguageModel>),
    Apex(ApexDistributedDataParallel<LanguageModel>),
}

impl Parallel {
    /// Wraps the model that `build` makes in `vs`, on the first of `devices`.
    pub fn new(
        args: &MethodArgs,
        build: impl Fn(&Path<'_>) -> LanguageModel,
        vs: &VarStore,
        devices: &Devices,
        group: &ProcessGroup,
    ) -> Result<Self> {
        // ANCHOR: new
        Ok(match args.method {
            Method::DataParallel | Method::OutputDevice => {
                let output_device = Some(args.output_device(devices)?);
                let options = DataParallelOptions { output_device, ..Default::default() };
                Self::DataParallel(DataParallel::with_options(build, vs, devices, options)?)
            }
            Method::CustomCriterion => {
                let criterion = match args.weighted {
                    true => Criterion::weighted(bert_means),
                    false => Criterion::new(bert_loss),
                };
                Self::CustomCriterion(DataParallelModel::new(build, vs, devices)?, criterion)
            }
            Method::Ddp => {
                let find_unused_parameters = args.find_unused_parameters;
                let options = DdpOptions { find_unused_parameters, ..Default::default() };
                let bert = build(&vs.root());
                Self::Ddp(DistributedDataParallel::with_options(bert, vs, group, options)?)
            }
            Method::Apex => {
                // As in Apex's ImageNet example.
                let options = ApexOptions { delay_allreduce: true, ..Default::default() };
                Self::Apex(ApexDistributedDataParallel::new(build(&vs.root()), vs, group, options)?)
            }
        })
        // ANCHOR_END: new
    }

    /// Records in `trace` what the replicas of one process do.
    pub fn set_trace(&self, trace: &Trace) {
        match self {
            Parallel::DataParallel(model) => model.set_trace(trace),
            Parallel::CustomCriterion(model, _) => model.set_trace(trace),
            Parallel::Ddp(_) | Parallel::Apex(_) => {}
        }
    }

    /// How long a rank of several only waits for gradients in a step.
    pub fn waiting_time(&self) -> Result<Option<Duration>> {
        Ok(match self {
            Parallel::DataParallel(_) | Parallel::CustomCriterion(..) => None,
            Parallel::Ddp(model) => Some(model.logging_data()?.waiting_time()),
            Parallel::Apex(model) => Some(model.logging_data()?.waiting_time()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{BertDataset, Corpus, Vocab, VocabOptions};
    use crate::model::ModelOptions;
    use std::path;
    use tch::{Device, Kind};
    use tch_parallel::data::Dataset;
    use tch_parallel::{LogicalDevice, Tensors};

    type Pair = (Tensor, Tensor);

    /// BERT-tiny, and a batch in which chunks differ in how many words are to be guessed.
    struct Problem {
        options: ModelOptions,
        vocab_size: i64,
        input: Pair,
        target: Pair,
        /// What all devices begin with.
        weights: VarStore,
    }

    impl Problem {
        fn new(rows: usize) -> Self {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pairs.txt");
            let corpus = Corpus::load(path::Path::new(path)).unwrap();
            let vocab = Vocab::build(&corpus, VocabOptions::default());
            let options = ModelOptions {
                hidden: 32,
                layers: 2,
                attn_heads: 2,
                seq_len: 16,
                vocab_size: None,
                dropout: 0.0,
            };
            let vocab_size = vocab.len() as i64;
            let dataset = BertDataset::new(&corpus, &vocab, 16, 3);
            let (input, target) = dataset.batch(&(0..rows).collect::<Vec<_>>(), 0).unwrap();
            let weights = VarStore::new(Device::Cpu);
            let _ = LanguageModel::new(&weights.root(), &options, vocab_size);
            // Not drawn: tests run at once, and all would draw from the one global generator.
            tch::no_grad(|| {
                for (number, mut weight) in weights.trainable_variables().into_iter().enumerate() {
                    let count = Tensor::arange(weight.numel() as i64, (Kind::Float, Device::Cpu));
                    weight.copy_(&((count * 0.7 + number as f64).sin() * 0.2).view_as(&weight));
                }
            });
            Self { options, vocab_size, input, target, weights }
        }

        fn build(&self) -> impl Fn(&Path<'_>) -> LanguageModel {
            let (options, vocab_size) = (self.options, self.vocab_size);
            move |path| LanguageModel::new(path, &options, vocab_size)
        }

        /// The loss and the gradients on one device, without any wrapper.
        fn reference(&self) -> (f64, Vec<Tensor>) {
            let mut vs = VarStore::new(Device::Cpu);
            let model = self.build()(&vs.root());
            vs.copy(&self.weights).unwrap();
            let loss = bert_loss(&run(&model, self.input.shallow_clone()), &self.target);
            loss.backward();
            (loss.double_value(&[]), gradients(&vs))
        }

        fn data_parallel(&self, devices: usize, output: usize) -> (f64, Vec<Tensor>) {
            let devices = Devices::cpu(devices).unwrap();
            let mut vs = VarStore::new(Device::Cpu);
            let output_device = Some(LogicalDevice::Cpu(output));
            let options = DataParallelOptions { output_device, ..Default::default() };
            let model = DataParallel::with_options(self.build(), &vs, &devices, options).unwrap();
            vs.copy(&self.weights).unwrap();
            let output = model.forward(self.input.shallow_clone(), run).unwrap();
            let loss = bert_loss(&output, &self.target);
            model.backward(&loss).unwrap();
            (loss.double_value(&[]), gradients(&vs))
        }

        fn custom_criterion(&self, devices: usize, criterion: &Criterion) -> (f64, Vec<Tensor>) {
            let mut vs = VarStore::new(Device::Cpu);
            let devices = Devices::cpu(devices).unwrap();
            let model = DataParallelModel::new(self.build(), &vs, &devices).unwrap();
            vs.copy(&self.weights).unwrap();
            let outputs = model.forward(self.input.shallow_clone(), run).unwrap();
            let loss = criterion.forward(outputs, self.target.shallow_clone()).unwrap();
            let value = loss.value().double_value(&[]);
            loss.backward().unwrap();
            (value, gradients(&vs))
        }
    }

    fn run(model: &LanguageModel, (tokens, segments): Pair) -> Pair {
        model.forward_t(&tokens, &segments, true)
    }

    fn gradients(vs: &VarStore) -> Vec<Tensor> {
        vs.trainable_variables().iter().map(Tensor::grad).collect()
    }

    /// How far all gradients together are from the expected ones, relative to their length. (Some
    /// are nothing but rounding: the bias of an attention's keys shifts all scores alike.)
    fn distance(found: &[Tensor], expected: &[Tensor]) -> f64 {
        let whole = |parts: &[Tensor]| {
            let flat: Vec<_> = parts.iter().map(|part| part.view([-1])).collect();
            Tensor::cat(&flat, 0).to_kind(Kind::Double)
        };
        let (found, expected) = (whole(found), whole(expected));
        (found - &expected).norm().double_value(&[]) / expected.norm().double_value(&[])
    }

    #[test]
    fn every_method_has_the_gradients_of_one_device() {
        // Chunks of 4 and 4; of 3, 3 and 1; of 2, 2, 2 and 1.
        for (rows, devices) in [(8, 2), (7, 3), (7, 4)] {
            let problem = Problem::new(rows);
            let (loss, expected) = problem.reference();
            for (method, (found_loss, found)) in [
                ("data-parallel", problem.data_parallel(devices, 0)),
                ("output-device", problem.data_parallel(devices, 1)),
                (
                    "custom-criterion",
                    problem.custom_criterion(devices, &Criterion::weighted(bert_means)),
                ),
            ] {
                // Sums in another order, of f32.
                assert!((found_loss / loss - 1.0).abs() < 1e-6, "{method}: {found_loss} {loss}");
                let distance = distance(&found, &expected);
                assert!(distance < 1e-6, "{method}, {rows} rows on {devices}: {distance}");
            }
        }
    }

    /// The article's criterion divides the sum of the losses by the number of devices, whatever
    /// these are means over.
    #[test]
    fn the_mean_of_the_devices_losses_is_not_the_loss_of_the_batch() {
        let problem = Problem::new(8);
        let (is_next, labels) = &problem.target;
        let counts = |target: &Tensor| {
            let chunks = target.chunk(2, 0);
            chunks.iter().map(|part| part.count_nonzero(None).int64_value(&[])).collect::<Vec<_>>()
        };
        assert_eq!((counts(is_next), counts(labels)), (vec![1, 2], vec![6, 11]));
        let (loss, gradients) = problem.reference();
        let (mean, found) = problem.custom_criterion(2, &Criterion::new(bert_loss));
        // To four decimals: processors differ in the last bits.
        assert!((loss - 6.0108).abs() < 1e-4, "{loss}");
        assert!((mean - 5.9749).abs() < 1e-4, "{mean}");
        // And the gradients are off by 17 %.
        let distance = distance(&found, &gradients);
        assert!((distance - 0.1744).abs() < 1e-4, "{distance}");
    }
}
