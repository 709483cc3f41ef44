//! What of a variable store the ranks share.

use super::{ddp_options::DdpOptions, delayed};
use crate::{Error, Result, check, distributed::fsdp::shards, distributed::group::ProcessGroup};
use c10d_sys::{is_in_reducer, tensor::identity};
use std::collections::{BTreeSet, HashSet};
use tch::{Kind, Tensor, nn::VarStore};
use tch_parallel_base::parameters::{named_buffers, named_parameters};
use tch_parallel_optim::steps_in_backward;

/// The shared parameters when they were wrapped: whether trained, the kinds of those in no bucket, the layouts of all.
pub(super) type Wrapped = Vec<(String, Tensor, bool, Option<Kind>, Vec<i64>)>;

pub(crate) struct ModuleTensors {
    /// All parameters, in the order of registration, which all ranks share.
    pub parameters: Vec<(String, Tensor)>,
    /// What rank 0 sends at first and before each forward pass; empty if the options disable it.
    pub buffers: Vec<(String, Tensor)>,
    /// Those whose gradients are averaged apart from the buckets.
    pub delayed: Option<delayed::Named>,
    /// The parameters that are each rank's own.
    ignored: BTreeSet<String>,
}

impl ModuleTensors {
    /// An error if nothing is trained on all ranks, if it is on several devices, or if options name what is not there.
    pub(crate) fn new(vs: &VarStore, options: &DdpOptions) -> Result<Self> {
        let parameters = named_parameters(vs);
        let mut buffers = named_buffers(vs);
        let there: HashSet<_> = parameters.iter().chain(&buffers).map(|(name, _)| name).collect();
        let ignored = options.params_and_buffers_to_ignore.clone();
        if let Some(name) = ignored.iter().find(|it| !there.contains(it)) {
            let found = format!("{name:?}, which is not in the store");
            let expected = "the names of variables of the store";
            return Err(Error::argument("params_and_buffers_to_ignore", found, expected));
        }
        buffers.retain(|(name, _)| options.broadcast_buffers && !ignored.contains(name));
        let mut tensors = ModuleTensors { parameters, buffers, ignored, delayed: None };
        let trained: Vec<_> = tensors.trained().collect();
        let is_trained = |name: &&String| trained.iter().any(|(own, _)| own == *name);
        if let Some(name) = options.sparse_gradients.iter().find(|name| !is_trained(name)) {
            let found = format!("{name:?}, which is not trained on all ranks");
            return Err(Error::argument("sparse_gradients", found, "the names of such parameters"));
        }
        check_devices(&trained)?;
        let instead = "FullyShard reduces the gradients itself, in FsdpModule::backward";
        shards::refuse("DistributedDataParallel", &trained, instead)?;
        let steps = trained.iter().any(|(_, it)| steps_in_backward(it));
        let found = "a store with an OptimizerInBackward, which steps before the exchange";
        check(!steps, "vs", found, "one without it: HookThenOptimizer steps after the exchange")?;
        tensors.delayed = delayed::named(&trained, options)?;
        Ok(tensors)
    }

    /// The parameters that are the same on all ranks, including frozen ones.
    pub(crate) fn shared_parameters(&self) -> impl Iterator<Item = &(String, Tensor)> {
        self.parameters.iter().filter(|(name, _)| !self.ignored.contains(name))
    }

    /// The parameters whose gradients are exchanged in buckets.
    pub(crate) fn trained(&self) -> impl Iterator<Item = (String, Tensor)> {
        let delayed = self.delayed.iter().flat_map(|(delayed, _)| delayed);
        let delayed: HashSet<_> = delayed.map(|(name, _)| name).collect();
        self.shared_parameters()
            .filter(move |(name, it)| it.requires_grad() && !delayed.contains(name))
            .map(|(name, parameter)| (name.clone(), parameter.shallow_clone()))
    }

    pub(crate) fn buffers(&self) -> Vec<Tensor> {
        self.buffers.iter().map(|(_, buffer)| buffer.shallow_clone()).collect()
    }

    /// To be called once the reducer has its hooks.
    pub(super) fn wrapped(&self) -> Wrapped {
        let of = |(name, it): &(String, Tensor)| {
            let kind = (!is_in_reducer(it)).then(|| it.kind());
            (name.clone(), it.shallow_clone(), it.requires_grad(), kind, layout(it))
        };
        self.shared_parameters().map(of).collect()
    }

    /// Everything that is the same on all ranks.
    pub(crate) fn shared(&self) -> Vec<Tensor> {
        let parameters = self.shared_parameters().map(|(_, tensor)| tensor.shallow_clone());
        parameters.chain(self.buffers()).collect()
    }
}

/// Fails if a pass would compute gradients that no hook of the reducer sees, or that it lays out in another way.
pub(super) fn expect_unchanged(wrapped: &Wrapped) -> Result<()> {
    for (name, it, trained, kind, laid_out) in wrapped {
        let found = match it.requires_grad() {
            true if !trained => "trained",
            // Converting it back does not bring the hook back.
            true if kind.map_or(!is_in_reducer(it), |kind| it.kind() != kind) => {
                "no longer watched: it was converted to another kind, or moved"
            }
            // The buckets keep the layout that the gradients had then.
            true if kind.is_none() && layout(it) != *laid_out => "laid out anew in memory",
            _ => continue,
        };
        let expected = "as it was when the model was wrapped; wrap it again";
        return Err(Error::argument(format_args!("the parameter {name}"), found, expected));
    }
    Ok(())
}

/// The strides that matter.
fn layout(tensor: &Tensor) -> Vec<i64> {
    let dims = tensor.size().into_iter().zip(tensor.stride());
    dims.filter(|(size, _)| *size > 1).map(|(_, stride)| stride).collect()
}

/// Refuses variables with which a new rank of an elastic training would begin anew.
pub(super) fn expect_lasting(vs: &VarStore, group: &ProcessGroup) -> Result<()> {
    let Some(lasting) = group.inner.lasting.get() else { return Ok(()) };
    let are_lasting = vs.variables().values().all(|it| lasting.contains(&identity(it)));
    let expected = "the one of its training, which a new rank gets from the others";
    check(are_lasting, "vs", "a store that elastic::State does not hold", expected)
}

fn check_devices(parameters: &[(String, Tensor)]) -> Result<()> {
    let Some((name, first)) = parameters.first() else {
        let found = "a variable store without a variable that requires a gradient";
        let expected =
            "the store of a model with trainable parameters; build the model before wrapping it";
        return Err(Error::argument("vs", found, expected));
    };
    let here = first.device();
    let Some((other, there)) = parameters.iter().find(|(_, it)| it.device() != here) else {
        return Ok(());
    };
    let there = there.device();
    let found = format!("a store with {name} on {here:?} and {other} on {there:?}");
    Err(Error::argument("vs", found, "one whose parameters are all on the device of this rank"))
}
