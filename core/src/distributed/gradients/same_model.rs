//! Whether all ranks have built the same model.
//!
//! The engine compares only shapes, and informs only the ranks that differ from rank 0. Differences that it does not
//! check (kinds, names, buffers, options) would cause wrong weights or an endless wait.

use super::{ddp_options::DdpOptions, module_tensors::ModuleTensors};
use crate::{Error, Result, distributed::group::ProcessGroup};
use std::{fmt::Write, iter::repeat_with};
use tch::Tensor;

/// One line for each property that must be equal.
pub(crate) fn description(tensors: &ModuleTensors, options: &DdpOptions) -> String {
    let mut text = String::new();
    // Buffers that a training before this one has cast are the same as those that will be cast.
    let cast = options.mixed_precision.and_then(|precision| precision.buffer_dtype);
    let mut line = |what: &str, name: &str, tensor: &Tensor| {
        let is_cast = what == "buffer" && tensor.is_floating_point();
        let kind = cast.filter(|_| is_cast).unwrap_or(tensor.kind());
        let frozen = if what == "parameter" && !tensor.requires_grad() { ", frozen" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what} {name} of {kind:?} {:?}{frozen}", tensor.size());
    };
    tensors.shared_parameters().for_each(|(name, tensor)| line("parameter", name, tensor));
    tensors.buffers.iter().for_each(|(name, tensor)| line("buffer", name, tensor));
    let _ = writeln!(text, "{options:?}");
    if options.virtual_ranks.is_some() {
        let _ = writeln!(text, "OMP_NUM_THREADS={}", tch::get_num_threads());
    }
    text
}

/// What rank 0 passes for a comparison if it cannot build its model.
const NO_MODEL: &str = "";

/// An error on every rank if a rank cannot build its model, or if its description differs from rank 0's, with the first
/// difference. A collective of the ranks of this library; if rank 0 runs Python, nothing is compared.
pub(crate) fn check(
    group: &ProcessGroup,
    operation: &'static str,
    description: Result<String, &Error>,
) -> Result<()> {
    let own = description.as_deref().unwrap_or(NO_MODEL);
    let theirs = group.compare_with_rank_0(operation, own)?;
    let objection = match description {
        Err(error) => Some(error.to_string()),
        // Rank 0 objects itself then.
        Ok(_) if theirs.as_deref() == Some(NO_MODEL) => None,
        Ok(own) => theirs.and_then(|theirs| first_difference(&own, &theirs)),
    };
    group.agree(operation, objection.as_deref())
}

fn first_difference(ours: &str, theirs: &str) -> Option<String> {
    let (mut ours, mut theirs) = (ours.lines(), theirs.lines());
    let mut pairs = repeat_with(|| (ours.next(), theirs.next()));
    let (ours, theirs) = pairs.find(|(ours, theirs)| ours != theirs || ours.is_none())?;
    (ours != theirs).then(|| {
        let [ours, theirs] = [ours, theirs].map(|line| line.unwrap_or("nothing more"));
        format!(
            "its model is not rank 0's: it has {ours}, where rank 0 has {theirs}; build the same \
             model with the same options on every rank"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let ours = "parameter a of Float [2]\nparameter b of Float [3]\n";
        assert_eq!(first_difference(ours, ours), None);
        let shorter = "parameter a of Float [2]\n";
        insta::assert_snapshot!(
            first_difference(ours, shorter).unwrap(),
            @"its model is not rank 0's: it has parameter b of Float [3], where rank 0 has nothing more; build the same model with the same options on every rank"
        );
        assert!(first_difference(shorter, ours).unwrap().contains("it has nothing more"));
    }
}
