//! Activation checkpointing: `torch.utils.checkpoint`.

use crate::Result;
use c10d_sys::autograd::{GraphEnd, ThreadState, backward, check_accumulates, hook_gradients};
use c10d_sys::{storage::version, tensor::grad_enabled};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use tch::{Device, Tensor, nn::ModuleT, no_grad_guard};
use tch_parallel_base::random::{RandomState, SHARES_GENERATOR, TAKES_TURNS, drawing_nothing};
use tch_parallel_base::tensors::{fill, list};
use tch_parallel_base::{Error, Tensors, error::check, lock};

/// Recomputes a block's activations in the backward pass, which trades time for memory. `checkpoint_wrapper(module)`,
/// with `torch.utils.checkpoint.checkpoint`. Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
///
/// Only the block's inputs are kept. The second forward pass runs under the same autocast and draws the same random
/// numbers as the first, so that gradients have the same bits as without the wrapper, even with dropout.
///
/// This works like PyTorch with `use_reentrant=True`:
///
/// - There is no `autograd.grad` or `run_backward` through it, nor `create_graph`.
/// - Pass every tensor that has a graph as an input: a captured one's can be used only once.
/// - A batch norm updates its running statistics in both forward passes.
/// - On logical devices, whose replicas share a generator, a block that draws random numbers fails in the backward pass.
/// - If a block runs twice in one pass, its gradients are added one after the other, which can change
///   their last bits.
///
/// ```
/// use tch::nn::{ModuleT, VarStore, seq_t};
/// use tch::{Device, Kind, Tensor};
/// use tch_parallel::nn::{CheckpointWrapper, LinearOptions, linear};
///
/// let vs = VarStore::new(Device::Cpu);
/// let block = |i: i64| {
///     let up = linear(vs.root() / i / "up", 8, 32, LinearOptions::default());
///     let down = linear(vs.root() / i / "down", 32, 8, LinearOptions::default());
///     let block = seq_t().add(up).add_fn_t(|xs, train| xs.relu().dropout(0.1, train)).add(down);
///     CheckpointWrapper::new(block)
/// };
/// let model = seq_t().add(block(0)).add(block(1));
/// let xs = Tensor::ones([4, 8], (Kind::Float, Device::Cpu));
/// model.forward_t(&xs, true).sum(Kind::Float).backward();
/// assert!(vs.variables()["0.up.weight"].grad().defined());
/// ```
pub struct CheckpointWrapper<M> {
    /// Shared with the graphs that will run it again, on any of autograd's threads.
    module: Arc<Mutex<M>>,
}

/// The module, once no other thread uses it. Among threads that take turns, waiting for that would never end.
fn held<M>(module: &Mutex<M>) -> Result<MutexGuard<'_, M>> {
    let is_free = !TAKES_TURNS.get() || !matches!(module.try_lock(), Err(TryLockError::WouldBlock));
    let (what, expected) = ("a CheckpointWrapper in backward_shares", "around other layers");
    check(is_free, what, "around a layer that exchanges, such as SyncBatchNorm", expected)?;
    Ok(lock(module))
}

impl<M: Send + 'static> CheckpointWrapper<M> {
    /// Wraps a block.
    pub fn new(module: M) -> Self {
        CheckpointWrapper { module: Arc::new(Mutex::new(module)) }
    }

    /// Calls `f` with the module and the inputs, now and again in the backward pass.
    ///
    /// # Errors
    /// [`Error::Tensor`] if libtorch reports an error, and [`Error::Argument`] around a layer that exchanges, within
    /// `backward_shares`. The backward pass fails if an input was changed in place, and when it is run a second time.
    pub fn forward<I: Tensors + Send + 'static, O: Tensors>(
        &self,
        mut inputs: I,
        f: impl Fn(&M, I) -> O + Send + 'static,
    ) -> Result<O> {
        if !grad_enabled() {
            return Ok(f(&*held(&self.module)?, inputs));
        }
        let mut sources = list(&inputs);
        let mut again = Again::new(&self.module, &mut inputs)?;
        let outputs = {
            // Unlike `no_grad`, also until a panic.
            let _no_gradients = no_grad_guard();
            f(&*held(&self.module)?, inputs.shallow_clone())
        };
        let end = SHARES_GENERATOR.get().then(|| RandomState::of(&again.devices));
        again.end = end.transpose()?;
        let mut results = list(&outputs);
        sources.retain(Tensor::requires_grad);
        if sources.is_empty() {
            // Without an input in the graph, the backward pass would not reach the parameters.
            let anchor = Tensor::f_zeros([0], (tch::Kind::Float, tch::Device::Cpu))?;
            sources.push(anchor.f_set_requires_grad(true)?);
        }
        // Freed as soon as no further backward pass can follow.
        let mut saved = Some(inputs);
        hook_gradients(&mut results, &sources, move |gradients, keep_graph| {
            check_accumulates("a CheckpointWrapper")?;
            let inputs =
                if keep_graph { saved.as_ref().map(I::shallow_clone) } else { saved.take() };
            let twice = "the backward pass of a CheckpointWrapper has already been run and freed its inputs; add the losses up, and call backward once";
            again.backward(inputs.ok_or(twice)?, &f, gradients)
        })
        .map_err(Error::engine("checkpoint"))?;
        Ok(fill(&outputs, results))
    }

    /// [`forward`](Self::forward) for use within a forward pass that, like tch's own, returns no errors.
    ///
    /// # Panics
    /// If [`forward`](Self::forward) returns an error.
    pub fn call<I: Tensors + Send + 'static, O: Tensors>(
        &self,
        inputs: I,
        f: impl Fn(&M, I) -> O + Send + 'static,
    ) -> O {
        self.forward(inputs, f).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Held while a replica rewinds the shared generator for its second forward pass, so that no other draws from it.
static DRAWING: Mutex<()> = Mutex::new(());

/// What the second forward pass needs to know about the first.
struct Again<M> {
    module: Arc<Mutex<M>>,
    /// Whether each input needs a gradient, and its version.
    inputs: Vec<(bool, i64)>,
    devices: Vec<Device>,
    /// The generators before the first pass and, where other replicas may have drawn from them, after it.
    start: RandomState,
    end: Option<RandomState>,
    thread: ThreadState,
}

impl<M> Again<M> {
    /// Also detaches the inputs.
    fn new(module: &Arc<Mutex<M>>, inputs: &mut impl Tensors) -> Result<Self> {
        let (mut marks, mut devices) = (Vec::new(), Vec::new());
        inputs.visit(&mut |input| {
            devices.push(input.device());
            marks.push((input.requires_grad(), version(input)));
            *input = input.detach();
        });
        Ok(Again {
            module: Arc::clone(module),
            inputs: marks,
            start: RandomState::of(&devices)?,
            end: None,
            devices,
            thread: ThreadState::of_this_thread().map_err(Error::engine("checkpoint"))?,
        })
    }

    /// Runs the forward pass again, then its backward pass. Returns the gradients of the inputs that require one.
    fn backward<I: Tensors, O: Tensors>(
        &self,
        mut inputs: I,
        f: &impl Fn(&M, I) -> O,
        gradients: Vec<Option<Tensor>>,
    ) -> Result<Vec<Option<Tensor>>, c10d_sys::Error> {
        let (mut marks, mut leaves, mut changed) = (self.inputs.iter(), Vec::new(), false);
        inputs.visit(&mut |input| {
            if let Some((requires_grad, version_then)) = marks.next() {
                changed |= version(input) != *version_then;
                *input = input.detach().set_requires_grad(*requires_grad);
                leaves.extend(requires_grad.then(|| input.shallow_clone()));
            }
        });
        if changed {
            let what = "an input of a CheckpointWrapper was modified by an inplace operation";
            return Err(what.into());
        }
        let run = || {
            self.start.restore()?;
            let module = held(&self.module)?;
            let outputs = self.thread.run(|| f(&*module, inputs));
            Ok((outputs, RandomState::of(&self.devices)?))
        };
        let alone = self.end.as_ref().map(|_| lock(&DRAWING));
        let ran = drawing_nothing(&self.devices, run).flatten();
        drop(alone);
        let (outputs, end) = ran.map_err(|error: Error| error.to_string())?;
        if self.end.as_ref().is_some_and(|then| !end.is_at(&self.start, then)) {
            let what = "a CheckpointWrapper drew other random numbers in its second pass: replicas on logical devices \
                        share a generator; use one device, or no dropout";
            return Err(what.into());
        }
        let (mut ends, mut known, mut gradients) = (Vec::new(), Vec::new(), gradients.into_iter());
        outputs?.visit(&mut |output| {
            if let Some(gradient) = gradients.next().flatten().filter(|_| output.requires_grad()) {
                ends.push(GraphEnd::of(output));
                known.push(gradient);
            }
        });
        let ends = ends.into_iter().collect::<Result<Vec<_>, _>>()?;
        backward(&ends.iter().collect::<Vec<_>>(), known, false)?;
        Ok(leaves.iter().map(Tensor::grad).map(|it| it.defined().then_some(it)).collect())
    }
}

impl<M: ModuleT + 'static> ModuleT for CheckpointWrapper<M> {
    /// # Panics
    /// Like [`call`](Self::call).
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.call(xs.shallow_clone(), move |module, xs| module.forward_t(&xs, train))
    }
}

impl<M> fmt::Debug for CheckpointWrapper<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let module = std::any::type_name::<M>();
        f.debug_struct("CheckpointWrapper").field("module", &module).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinearOptions, linear};
    use tch::{Kind, kind::FLOAT_CPU as FLOAT, nn::SequentialT, nn::VarStore, nn::seq_t, no_grad};
    use tch_parallel_base::memory::{memory_allocated, reset_peak_memory_stats};
    use tch_parallel_base::{LogicalDevice, Shared, memory::max_memory_allocated};

    fn block(vs: &VarStore, i: i64) -> SequentialT {
        let layer =
            |name, from, to| linear(vs.root() / i / name, from, to, LinearOptions::default());
        seq_t().add(layer("up", 16, 64)).add_fn(|xs| xs.gelu("none")).add(layer("down", 64, 16))
    }

    fn model(vs: &VarStore, wrapped: bool) -> SequentialT {
        (0..6).fold(seq_t(), |model, i| match wrapped {
            true => model.add(CheckpointWrapper::new(block(vs, i))),
            false => model.add(block(vs, i)),
        })
    }

    #[test]
    fn a_block_keeps_only_its_inputs() {
        let xs = Tensor::ones([512, 16], FLOAT);
        let device = LogicalDevice::of(&xs);
        let [plain, wrapped] = [false, true].map(|wrapped| {
            let vs = VarStore::new(Device::Cpu);
            let model = model(&vs, wrapped);
            let before = memory_allocated(device).unwrap();
            reset_peak_memory_stats(device).unwrap();
            model.forward_t(&xs, true).square().mean(Kind::Float).backward();
            max_memory_allocated(device).unwrap() - before
        });
        assert!(wrapped < plain / 2, "{wrapped} of {plain} bytes");
    }

    #[test]
    fn the_first_backward_pass_frees_the_inputs_and_a_second_is_an_error() {
        let wrapper = CheckpointWrapper::new(Tensor::ones([2], FLOAT).set_requires_grad(true));
        let held = Arc::new(());
        let inputs = (Tensor::ones([2], FLOAT), Shared(Arc::clone(&held)));
        let loss = wrapper.forward(inputs, |weight, (x, _)| (weight * x).sum(Kind::Float)).unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        loss.backward();
        assert_eq!(Arc::strong_count(&held), 1);
        let error = loss.f_backward().unwrap_err().to_string();
        assert!(error.contains("has already been run"), "{error}");
    }

    #[test]
    fn several_tensors_go_in_and_out_and_one_may_need_no_gradient() {
        let weight = Tensor::from_slice(&[2f32, 3.0]).set_requires_grad(true);
        let wrapper = CheckpointWrapper::new(weight.shallow_clone());
        let x = Tensor::from_slice(&[5f32, 7.0]).set_requires_grad(true);
        let mask = Tensor::from_slice(&[1f32, 0.0]);
        let outputs = wrapper.forward((x.shallow_clone(), Some(mask)), |weight, (x, mask)| {
            (weight * &x * mask.unwrap(), vec![weight.square(), x.detach()])
        });
        let (product, others) = outputs.unwrap();
        (product.sum(Kind::Float) + others[0].sum(Kind::Float)).backward();
        assert_eq!(x.grad(), Tensor::from_slice(&[2f32, 0.0]));
        assert_eq!(weight.grad(), Tensor::from_slice(&[5f32 + 4.0, 6.0]));
    }

    #[test]
    fn without_gradients_nothing_is_kept() {
        let vs = VarStore::new(Device::Cpu);
        let output = no_grad(|| model(&vs, true).forward_t(&Tensor::ones([2, 16], FLOAT), false));
        assert!(!output.requires_grad());
    }

    #[test]
    fn an_input_that_was_changed_in_place_meanwhile_is_an_error() {
        let wrapper = CheckpointWrapper::new(Tensor::ones([2], FLOAT).set_requires_grad(true));
        let x = Tensor::ones([2], FLOAT);
        let output = wrapper.forward(x.shallow_clone(), |weight, x| weight * x).unwrap();
        let _ = x.shallow_clone().fill_(3.0);
        let error = output.sum(Kind::Float).f_backward().unwrap_err().to_string();
        assert!(error.contains("modified by an inplace operation"), "{error}");
    }
}
