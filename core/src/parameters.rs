//! What a variable store holds, in an order that all ranks share.

use c10d_sys::tensor::identity;
use std::collections::{HashMap, HashSet};
use tch::Tensor;
use tch::nn::VarStore;

/// The variables that are being trained, in the order of registration, with their names:
/// `module.named_parameters()` without the frozen ones.
pub(crate) fn named_parameters(vs: &VarStore) -> (Vec<String>, Vec<Tensor>) {
    let variables = vs.variables();
    // tch knows the order of the trainable variables and the names of all, but not both at once.
    let names: HashMap<usize, &String> =
        variables.iter().map(|(name, variable)| (identity(variable), name)).collect();
    vs.trainable_variables()
        .into_iter()
        .filter(Tensor::requires_grad)
        .filter_map(|parameter| Some((names.get(&identity(&parameter))?.to_string(), parameter)))
        .unzip()
}

/// The variables that are never trained (running statistics, say): `module.named_buffers()`, but
/// ordered by name, since tch keeps no order of theirs.
pub(crate) fn named_buffers(vs: &VarStore) -> (Vec<String>, Vec<Tensor>) {
    let trainable: HashSet<_> = vs.trainable_variables().iter().map(identity).collect();
    let mut buffers: Vec<_> = vs
        .variables()
        .into_iter()
        .filter(|(_, variable)| !trainable.contains(&identity(variable)))
        .collect();
    buffers.sort_by(|(a, _), (b, _)| a.cmp(b));
    buffers.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, nn};

    #[test]
    fn parameters_keep_the_order_of_registration_and_leave_out_what_is_frozen() {
        let vs = nn::VarStore::new(Device::Cpu);
        let root = vs.root();
        let _ = root.zeros("z", &[1]);
        let frozen = root.zeros("m", &[1]);
        let _ = root.zeros("a", &[0]);
        let _ = frozen.set_requires_grad(false);
        assert_eq!(named_parameters(&vs).0, ["z", "a"]);
    }

    #[test]
    fn buffers_are_what_is_not_trainable() {
        let vs = nn::VarStore::new(Device::Cpu);
        let _ = nn::batch_norm2d(&vs.root() / "bn", 3, Default::default());
        assert_eq!(named_buffers(&vs).0, ["bn.running_mean", "bn.running_var"]);
    }
}
