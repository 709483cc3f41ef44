//! The variables of a variable store, in an order that all ranks share.

use c10d_sys::tensor::identity;
use std::collections::{HashMap, HashSet};
use tch::{Tensor, nn::VarStore};

/// The trainable variables, including frozen ones, in the order of registration: `module.named_parameters()`.
pub fn named_parameters(vs: &VarStore) -> Vec<(String, Tensor)> {
    let variables = vs.variables();
    // tch knows the order of the trainable variables and the names of all, but not both together.
    let names: HashMap<usize, &String> =
        variables.iter().map(|(name, variable)| (identity(variable), name)).collect();
    let named = |parameter: Tensor| {
        // A variable that was replaced in the store by another with its name has none.
        let name = names.get(&identity(&parameter)).map_or("(unnamed)", |name| name.as_str());
        (name.to_owned(), parameter)
    };
    vs.trainable_variables().into_iter().map(named).collect()
}

/// The variables that are never trained (running statistics, say), in the order of PyTorch's `module.named_buffers()`.
///
/// tch keeps no order of buffers. So a module's buffers come where the module's first parameter
/// does: a batch norm's in the order in which PyTorch registers them, all others by name. Ranks
/// that run Python expect this order, provided that every module with buffers also has parameters.
pub fn named_buffers(vs: &VarStore) -> Vec<(String, Tensor)> {
    let parameters = named_parameters(vs);
    let owners = owners(&parameters);
    let trainable: HashSet<_> = parameters.iter().map(|(_, tensor)| identity(tensor)).collect();
    let mut buffers: Vec<_> = vs.variables().into_iter().collect();
    buffers.retain(|(_, variable)| !trainable.contains(&identity(variable)));
    buffers.sort_by_cached_key(|(name, _)| {
        let (owner, own) = split(name);
        let position = owners.get(owner).copied().unwrap_or(usize::MAX);
        let place = BATCH_NORM.iter().position(|buffer| *buffer == own).unwrap_or(BATCH_NORM.len());
        (position, owner.to_owned(), place, own.to_owned())
    });
    buffers
}

/// All variables, in the order of PyTorch's `module.state_dict()`: each module's parameters, then its buffers.
pub fn named_variables(vs: &VarStore) -> Vec<(String, Tensor)> {
    let parameters = named_parameters(vs);
    let owners = owners(&parameters);
    let buffers = named_buffers(vs);
    let names = parameters.iter().chain(&buffers).map(|(name, _)| name);
    let places: HashMap<&String, usize> = names.zip(0..).collect();
    let mut variables: Vec<_> = vs.variables().into_iter().collect();
    variables.sort_by_cached_key(|(name, _)| {
        (owners.get(split(name).0).copied().unwrap_or(usize::MAX), places.get(name).copied())
    });
    variables
}

/// For each module, the position of its first parameter.
fn owners(parameters: &[(String, Tensor)]) -> HashMap<&str, usize> {
    let positions = parameters.iter().enumerate().map(|(at, (name, _))| (split(name).0, at));
    // Backwards, so that the first one stays.
    positions.rev().collect()
}

/// The buffers of `torch.nn.modules.batchnorm._NormBase`, as it registers them.
const BATCH_NORM: [&str; 3] = ["running_mean", "running_var", "num_batches_tracked"];

/// A module's path, and the variable's name in the module.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, nn};

    fn names(variables: Vec<(String, Tensor)>) -> String {
        variables.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn parameters_keep_the_order_of_registration() {
        let vs = nn::VarStore::new(Device::Cpu);
        let root = vs.root();
        let _ = root.zeros("z", &[1]);
        let _ = root.zeros("a", &[0]).set_requires_grad(false);
        let _ = root.zeros("m", &[1]);
        assert_eq!(names(named_parameters(&vs)), "z a m");
    }

    #[test]
    fn buffers_are_what_is_not_trainable_in_the_order_of_their_modules() {
        let vs = nn::VarStore::new(Device::Cpu);
        let root = vs.root();
        let _ = nn::batch_norm2d(&root / "z", 3, Default::default());
        let _ = root.zeros_no_train("table", &[1]);
        let _ = nn::batch_norm2d(&root / "a", 3, Default::default());
        let _ = (&root / "z").zeros_no_train("num_batches_tracked", &[]);
        let expected = "z.running_mean z.running_var z.num_batches_tracked \
                        a.running_mean a.running_var table";
        assert_eq!(names(named_buffers(&vs)), expected);
        let expected = "z.weight z.bias z.running_mean z.running_var z.num_batches_tracked \
                        a.weight a.bias a.running_mean a.running_var table";
        assert_eq!(names(named_variables(&vs)), expected);
    }
}
