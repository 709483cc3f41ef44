//! A model in parts that are exchanged one after the other.

use crate::{Result, check};
use tch::{Tensor, nn::VarStore};
use tch_parallel_base::parameters::named_parameters;

/// Cuts a store's trainable variables into `count` fragments of similar size, in order, for [`DiLoCo`](super::DiLoCo).
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) unless `count` is from 1 to the number of variables.
pub fn model_fragments(vs: &VarStore, count: usize) -> Result<Vec<Vec<(String, Tensor)>>> {
    let mut left = named_parameters(vs);
    let expected = format_args!("from 1 to {}, the number of trainable variables", left.len());
    check((1..=left.len()).contains(&count), "the number of fragments", count, expected)?;
    let mut fragments = Vec::new();
    for fragments_left in (1..=count).rev() {
        let sizes: Vec<_> = left.iter().map(|(_, variable)| variable.numel()).collect();
        let share = sizes.iter().sum::<usize>() / fragments_left;
        let mut taken = 1;
        // A variable goes where more than half of it has room. Each fragment that is left needs one.
        while taken + fragments_left <= sizes.len()
            && sizes[..taken].iter().sum::<usize>() + sizes[taken] / 2 <= share
        {
            taken += 1;
        }
        fragments.push(left.drain(..taken).collect());
    }
    Ok(fragments)
}
