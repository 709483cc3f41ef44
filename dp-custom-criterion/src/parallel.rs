//! The model, wrapped as its method requires: the one place where the methods differ.

use crate::args::{Method, Method::OutputDevice, MethodArgs};
use crate::loss::{bert_loss, bert_means};
use crate::model::{LanguageModel, Layer, ModelOptions, transformer_block};
use anyhow::Result;
use std::time::Duration;
use tch::{Tensor, nn::Path, nn::VarStore};
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, DataParallelModel};
use tch_parallel::data_parallel::{DataParallelOptions, Step, Trace, gather};
use tch_parallel::distributed::{ApexDistributedDataParallel, ApexOptions, DdpOptions};
use tch_parallel::distributed::{DistributedDataParallel, FsdpModule, FullyShard};
use tch_parallel::distributed::{FullyShardOptions, ProcessGroup};
use tch_parallel::{Devices, Tensors};

/// Tokens and segments; next sentence and masked words, as outputs and as targets.
pub type Pair = (Tensor, Tensor);

/// One variant for each wrapper; the methods `data-parallel` and `output-device` share theirs.
pub enum Wrapped {
    DataParallel(DataParallel<LanguageModel>, Trace),
    CustomCriterion(DataParallelModel<LanguageModel>, DataParallelCriterion<Pair, Pair>),
    Ddp(DistributedDataParallel<LanguageModel>),
    Apex(ApexDistributedDataParallel<LanguageModel>),
    Fsdp(FsdpModule<LanguageModel>),
}

/// The backward pass from a loss.
pub type Backward<'a> = Box<dyn FnOnce(&Tensor) -> tch_parallel::Result<()> + 'a>;

impl Wrapped {
    /// Wraps a model of this size and vocabulary, made in `vs` on the first of `devices`. `trace`
    /// records what the devices of one process do.
    pub fn new(
        args: &MethodArgs,
        (size, vocab_size): (&ModelOptions, i64),
        vs: &VarStore,
        devices: &Devices,
        group: &ProcessGroup,
        trace: &Trace,
    ) -> Result<Self> {
        let block = |path: &Path<'_>| transformer_block(path, size);
        let build = |path: &Path<'_>| LanguageModel::new(path, size, vocab_size, block);
        // ANCHOR: new
        Ok(match args.method {
            Method::DataParallel | OutputDevice => {
                let output_device = Some(devices.get((args.method == OutputDevice).into())?);
                let options = DataParallelOptions { output_device, ..Default::default() };
                let model = DataParallel::with_options(build, vs, devices, options)?;
                model.set_trace(trace);
                Self::DataParallel(model, trace.clone())
            }
            Method::CustomCriterion => {
                let criterion = match args.weighted {
                    true => DataParallelCriterion::weighted(bert_means),
                    false => DataParallelCriterion::new(bert_loss),
                };
                let model = DataParallelModel::new(build, vs, devices)?;
                model.set_trace(trace);
                Self::CustomCriterion(model, criterion)
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
            Method::Fsdp => {
                let options = FullyShardOptions { sync_module_states: true, ..Default::default() };
                let sharding = FullyShard::new(vs, group, options);
                let shard = |path: &Path<'_>| -> Layer {
                    let block = sharding.shard(path, block);
                    Box::new(move |inputs, train| {
                        block.call(inputs, |block, inputs| block(inputs, train))
                    })
                };
                Self::Fsdp(sharding.root(|root| LanguageModel::new(root, size, vocab_size, shard))?)
            }
        })
        // ANCHOR_END: new
    }

    /// The loss of a batch, a scalar; what the model says of the next sentence, and of the words where
    /// one device has them all; and the backward pass. `run` calls the model on a part of the batch.
    pub fn forward(
        &self,
        run: impl Fn(&LanguageModel, Pair) -> Pair + Sync,
        input: Pair,
        target: &Pair,
    ) -> Result<(Tensor, (Tensor, Option<Tensor>), Backward<'_>)> {
        Ok(match self {
            Self::DataParallel(model, trace) => {
                // ANCHOR: data_parallel
                let output = model.forward(input, run)?;
                // The targets go where the outputs are, and the loss is computed there.
                let there = model.output_device();
                let _on = there.guard()?;
                let target = (there.copy_of(&target.0)?, there.copy_of(&target.1)?);
                let loss = trace.span(Step::Loss, there, || bert_loss(&output, &target));
                (loss, (output.0, Some(output.1)), Box::new(|loss| model.backward(loss)))
                // ANCHOR_END: data_parallel
            }
            Self::CustomCriterion(model, criterion) => {
                // ANCHOR: custom_criterion
                let output = model.forward(input, run)?;
                let next = output.parts().iter().map(|(next, _)| next.shallow_clone());
                let next = gather(&next.collect::<Vec<_>>(), model.devices().first(), 0)?;
                let loss = criterion.forward(output, target.shallow_clone())?;
                let value = loss.value().shallow_clone();
                (value, (next, None), Box::new(move |_value| loss.backward()))
                // ANCHOR_END: custom_criterion
            }
            Self::Ddp(model) => {
                // ANCHOR: ddp
                let output = model.forward(|bert| run(bert, input))?;
                let loss = bert_loss(&output, target);
                (loss, (output.0, Some(output.1)), Box::new(|loss| model.backward(loss)))
                // ANCHOR_END: ddp
            }
            Self::Apex(model) => {
                // ANCHOR: apex
                // To find parameters without a gradient, the wrapper copies what is returned.
                let (loss, next) = model.forward(|bert| {
                    let output = run(bert, input);
                    (bert_loss(&output, target), output.0)
                })?;
                (loss, (next, None), Box::new(|loss| model.backward(loss)))
                // ANCHOR_END: apex
            }
            Self::Fsdp(model) => {
                let output = model.forward(input, run)?;
                let loss = bert_loss(&output, target);
                (loss, (output.0, Some(output.1)), Box::new(|loss| model.backward(loss)))
            }
        })
    }

    /// How long a rank of several only waits for gradients in a step.
    pub fn waiting_time(&self) -> Result<Option<Duration>> {
        Ok(match self {
            Self::DataParallel(..) | Self::CustomCriterion(..) => None,
            Self::Ddp(model) => Some(model.logging_data()?.waiting_time()),
            Self::Apex(model) => Some(model.logging_data()?.waiting_time()),
            Self::Fsdp(model) => Some(model.waiting_time()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{BertDataset, Corpus, Vocab, VocabOptions};
    use exhibit_kit::weights::{distance, gradients, set_weights};
    use report::parse_flags;
    use std::path;
    use tch::Device;
    use tch_parallel::data::Dataset;

    /// BERT-tiny, and a batch in which chunks differ in how many words are to be guessed.
    struct Problem {
        options: ModelOptions,
        vocab_size: i64,
        input: Pair,
        target: Pair,
    }

    impl Problem {
        fn new(rows: usize) -> Self {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pairs.txt");
            let corpus = Corpus::load(Some(path::Path::new(path))).unwrap();
            let vocab = Vocab::build(&corpus, VocabOptions::default());
            let flags = "--hidden=32 --layers=2 --attn-heads=2 --seq-len=16 --dropout=0";
            let options: ModelOptions = parse_flags(flags.split(' ')).unwrap();
            let vocab_size = vocab.len() as i64;
            let dataset = BertDataset::new(&corpus, &vocab, 16, 3);
            let (input, target) = dataset.batch(&(0..rows).collect::<Vec<_>>(), 0).unwrap();
            Self { options, vocab_size, input, target }
        }

        /// The loss and the gradients on one device, without any wrapper.
        fn reference(&self) -> (f64, Tensor) {
            let vs = VarStore::new(Device::Cpu);
            let block = |path: &Path<'_>| transformer_block(path, &self.options);
            let model = LanguageModel::new(&vs.root(), &self.options, self.vocab_size, block);
            set_weights(&vs, 0.0);
            let loss = bert_loss(&run(&model, self.input.shallow_clone()), &self.target);
            loss.backward();
            (loss.double_value(&[]), gradients(&vs))
        }

        /// The same with a method.
        fn train(&self, flags: &str) -> (f64, Tensor) {
            let args: MethodArgs = parse_flags(flags.split(' ')).unwrap();
            let (vs, devices) = (VarStore::new(Device::Cpu), args.devices(None).unwrap());
            let (group, trace) = (ProcessGroup::from_env().unwrap(), Trace::new());
            let size = (&self.options, self.vocab_size);
            let model = Wrapped::new(&args, size, &vs, &devices, &group, &trace).unwrap();
            set_weights(&vs, 0.0);
            let input = self.input.shallow_clone();
            let (loss, _, backward) = model.forward(run, input, &self.target).unwrap();
            backward(&loss).unwrap();
            (loss.double_value(&[]), gradients(&vs))
        }
    }

    fn run(model: &LanguageModel, (tokens, segments): Pair) -> Pair {
        model.forward_t(&tokens, &segments, true)
    }

    #[test]
    fn every_method_has_the_gradients_of_one_device() {
        // Chunks of 4 and 4; of 3, 3 and 1; of 2, 2, 2 and 1.
        for (rows, devices) in [(8, 2), (7, 3), (7, 4)] {
            let problem = Problem::new(rows);
            let (loss, expected) = problem.reference();
            let methods = ["data-parallel", "output-device", "custom-criterion --weighted"];
            let methods = methods.map(|method| format!("-m {method} --devices {devices}xcpu"));
            let of_ranks = ["ddp", "apex", "fsdp"].map(|method| format!("-m {method}"));
            for method in methods.into_iter().chain(of_ranks) {
                let (found_loss, found) = problem.train(&method);
                // Sums in another order, of f32.
                assert!((found_loss / loss - 1.0).abs() < 1e-6, "{method}: {found_loss} {loss}");
                // Of all gradients together. Some are nothing but rounding: the bias of an attention's
                // keys shifts all scores alike.
                let distance = distance(&found, &expected);
                assert!(distance < 1e-6, "{method}, {rows} rows: {distance}");
            }
        }
    }

    /// The article's criterion divides the sum of the losses by the number of devices, whatever these are means over.
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
        let (mean, found) = problem.train("-m custom-criterion --devices 2xcpu");
        // To four decimals: processors differ in the last bits.
        assert!((loss - 6.0108).abs() < 1e-4, "{loss}");
        assert!((mean - 5.9749).abs() < 1e-4, "{mean}");
        // And the gradients are off by 17 %.
        let distance = distance(&found, &gradients);
        assert!((distance - 0.1744).abs() < 1e-4, "{distance}");
    }
}
