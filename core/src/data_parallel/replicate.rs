//! A copy of the model on every device: `torch.nn.parallel.replicate`.

use super::coalesced::broadcast_coalesced;
use super::trace::{Span, Step, Trace};
use crate::{Devices, Error, LogicalDevice, Result};
use std::collections::HashSet;
use tch::{Device, Tensor, nn::VarStore, no_grad};
use tch_parallel_base::parameters::{named_buffers, named_parameters};

/// The variables of a model and of its replicas, in the same order for all.
pub(super) struct ModelVariables {
    original: Variables,
    /// One for each device but the first, which holds the original.
    replicas: Vec<Variables>,
}

pub(super) struct Variables {
    names: Vec<String>,
    pub(super) parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// For a replica: the original's state at the last copy.
    copied: Vec<Option<State>>,
}

/// A version and an address, which change when a tensor is written to or replaced.
type State = (i64, usize);

fn state_of(tensor: &Tensor) -> State {
    (tensor.internal_version(), tensor.data_ptr() as usize)
}

impl ModelVariables {
    /// The variables that the original created in `vs`, which already had those in `before`.
    pub fn new(vs: &VarStore, before: &HashSet<String>, device: LogicalDevice) -> Result<Self> {
        let original = Variables::of(vs, before);
        original.check_device(device)?;
        Ok(ModelVariables { original, replicas: Vec::new() })
    }

    pub fn add_replica(&mut self, store: &VarStore, device: LogicalDevice) -> Result<()> {
        let replica = Variables::of(store, &HashSet::new());
        self.original.check_names(&replica, device)?;
        self.replicas.push(replica);
        Ok(())
    }

    /// Copies the original's variables to the replicas among the first `count` devices.
    pub fn replicate(&mut self, devices: &Devices, count: usize, trace: &Trace) -> Result<()> {
        self.original.check_device(devices.first())?;
        // Recorded too, although nothing is copied.
        trace.begin(Step::Replicate, devices.first()).end();
        let sources: Vec<_> = self.original.iter().map(|(_, it)| it.shallow_clone()).collect();
        let replicas = devices.iter().take(count).skip(1).zip(&mut self.replicas);
        if Device::from(devices.first()).is_cuda() {
            return no_grad(|| refresh_gpus(&sources, replicas, trace));
        }
        // ANCHOR: refresh
        for (device, replica) in replicas {
            let mut span = trace.begin(Step::Replicate, device);
            let _on = device.guard()?;
            for (source, mut copy) in sources.iter().zip(replica.copies(&sources, device)?) {
                span.copied(source, device);
                no_grad(|| copy.f_copy_(source))?;
            }
            replica.have_copied(&sources);
            span.end();
        }
        // ANCHOR_END: refresh
        Ok(())
    }

    /// The original, and the replicas among the first `count` devices.
    pub fn first(&mut self, count: usize) -> (&mut Variables, &mut [Variables]) {
        (&mut self.original, &mut self.replicas[..count.saturating_sub(1)])
    }
}

/// Copies the original's variables to all GPUs at once, in few large copies.
fn refresh_gpus<'a>(
    sources: &[Tensor],
    replicas: impl Iterator<Item = (LogicalDevice, &'a mut Variables)>,
    trace: &Trace,
) -> Result<()> {
    let (mut spans, mut copies, mut refreshed) = (Vec::new(), Vec::new(), Vec::new());
    for (device, replica) in replicas {
        let mut span = trace.begin(Step::Replicate, device);
        sources.iter().for_each(|source| span.copied(source, device));
        spans.push(span);
        copies.push((device, replica.copies(sources, device)?));
        refreshed.push(replica);
    }
    broadcast_coalesced(sources, &copies)?;
    refreshed.into_iter().for_each(|replica| replica.have_copied(sources));
    spans.into_iter().for_each(Span::end);
    Ok(())
}

impl Variables {
    /// The variables of a store that are not in `before`.
    fn of(vs: &VarStore, before: &HashSet<String>) -> Self {
        let new = |(name, _): &(String, Tensor)| !before.contains(name);
        let [(names, parameters), (buffer_names, buffers)]: [(Vec<_>, Vec<_>); 2] =
            [named_parameters(vs), named_buffers(vs)].map(|it| it.into_iter().filter(new).unzip());
        let names = [names, buffer_names].concat();
        let copied = vec![None; names.len()];
        Variables { names, parameters, buffers, copied }
    }

    /// Parameters first, then buffers.
    fn iter(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        self.names.iter().zip(self.parameters.iter().chain(&self.buffers))
    }

    fn check_device(&self, expected: LogicalDevice) -> Result<()> {
        // An empty variable has no device.
        let elsewhere =
            |variable: &Tensor| variable.numel() > 0 && LogicalDevice::of(variable) != expected;
        let Some((name, variable)) = self.iter().find(|(_, variable)| elsewhere(variable)) else {
            return Ok(());
        };
        let found = format!("on {}", LogicalDevice::of(variable));
        let why = "where the original is; make and convert it under that device's guard";
        let expected = format!("on {expected}, the first device, {why}");
        Err(Error::argument(format!("variable {name}"), found, expected))
    }

    fn check_names(&self, replica: &Variables, device: LogicalDevice) -> Result<()> {
        if self.names == replica.names {
            return Ok(());
        }
        let missing = self.names.iter().find(|name| !replica.names.contains(name));
        let added = replica.names.iter().find(|name| !self.names.contains(name));
        let created = match (missing, added) {
            (Some(name), _) => format!("{name} in vs, but not on {device}"),
            (None, Some(name)) => format!("{name} on {device}, but not in vs"),
            (None, None) => format!("other variables on {device} than in vs"),
        };
        let expected = "one that creates the same variables every time; vs must not have them yet";
        Err(Error::argument("build", format!("a function that created {created}"), expected))
    }

    /// This replica's variables, for a copy of the original's: call `have_copied` afterwards.
    ///
    /// The graph of an earlier forward pass may still need a copy. If the source is unchanged, so is the copy, and the
    /// write is hidden from autograd to keep that graph valid. Otherwise, autograd's version counter detects it.
    fn copies(&mut self, sources: &[Tensor], device: LogicalDevice) -> Result<Vec<Tensor>> {
        let copies = self.parameters.iter_mut().chain(&mut self.buffers);
        let mut targets = Vec::new();
        for ((source, copy), copied) in sources.iter().zip(copies).zip(&mut self.copied) {
            let unchanged = copied.take() == Some(state_of(source));
            if (copy.kind(), copy.size()) != (source.kind(), source.size()) {
                // The original was converted, to half precision for example.
                copy.f_set_data(&device.copy_of(&source.f_detach()?)?)?;
            }
            if copy.requires_grad() != source.requires_grad() {
                let _ = copy.set_requires_grad(source.requires_grad());
            }
            targets.push(if unchanged { copy.f_data()? } else { copy.shallow_clone() });
        }
        Ok(targets)
    }

    fn have_copied(&mut self, sources: &[Tensor]) {
        self.copied = sources.iter().map(|source| Some(state_of(source))).collect();
    }
}
