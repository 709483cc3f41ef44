//! What a variable store holds, in an order that all ranks share.

use c10d_sys::tensor::identity;
use std::collections::{HashMap, HashSet};
use tch::Tensor;
use tch::nn::VarStore;

/// The trainable variables, frozen ones included, in the order of registration:
/// `module.named_parameters()`.
pub(crate) fn named_parameters(vs: &VarStore) -> Vec<(String, Tensor)> {
    let variables = vs.variables();
    // tch knows the order of the trainable variables and the names of all, but not both at once.
    let names: HashMap<usize, &String> =
        variables.iter().map(|(name, variable)| (identity(variable), name)).collect();
    vs.trainable_variables()
        .into_iter()
        .map(|parameter| {
            let name = names.get(&identity(&parameter)).map(|name| name.to_string());
            // A variable that was replaced in the store by another of its name has none.
            (name.unwrap_or_else(|| "(unnamed)".into()), parameter)
        })
        .collect()
}

/// The variables that are never trained (running statistics, say): `module.named_buffers()`, but
/// ordered by name, since tch keeps no order of theirs.
pub(crate) fn named_buffers(vs: &VarStore) -> Vec<(String, Tensor)> {
    let trainable: HashSet<_> = vs.trainable_variables().iter().map(identity).collect();
    let mut buffers: Vec<_> = vs
        .variables()
        .into_iter()
        .filter(|(_, variable)| !trainable.contains(&identity(variable)))
        .collect();
    buffers.sort_by(|(a, _), (b, _)| a.cmp(b));
    buffers
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, nn};

    fn names(variables: Vec<(String, Tensor)>) -> Vec<String> {
        variables.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn parameters_keep_the_order_of_registration() {
        let vs = nn::VarStore::new(Device::Cpu);
        let root = vs.root();
        let _ = root.zeros("z", &[1]);
        let _ = root.zeros("a", &[0]).set_requires_grad(false);
        let _ = root.zeros("m", &[1]);
        assert_eq!(names(named_parameters(&vs)), ["z", "a", "m"]);
    }

    #[test]
    fn buffers_are_what_is_not_trainable() {
        let vs = nn::VarStore::new(Device::Cpu);
        let _ = nn::batch_norm2d(&vs.root() / "bn", 3, Default::default());
        assert_eq!(names(named_buffers(&vs)), ["bn.running_mean", "bn.running_var"]);
    }
}
