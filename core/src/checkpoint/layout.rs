//! What stands where in a checkpoint: weights alone under the names of the model's variables, or a whole
//! training, whose tensors have a prefix each and whose metadata holds the rest.

use tch_parallel_base::named_tensors::NamedTensors;

/// The key in the file's `__metadata__` that holds everything in a training that is not a tensor.
pub(super) const HEADER: &str = "training";

/// The prefixes of a training's tensors.
pub(super) const MODEL: &str = "model.";
pub(super) const OPTIMIZER: &str = "optimizer.";
pub(super) const GENERATORS: &str = "rng.";

/// Removes the tensors with a prefix and returns them under their names without it.
pub(super) fn take(tensors: &mut NamedTensors, prefix: &str) -> NamedTensors {
    let taken = tensors.extract_if(|name, _| name.starts_with(prefix));
    taken.map(|(name, tensor)| (name[prefix.len()..].to_owned(), tensor)).collect()
}
