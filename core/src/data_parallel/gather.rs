//! Putting outputs together: `torch.nn.parallel.gather`.

use super::trace::{Step, Trace};
use crate::tensors::{fill, list};
use crate::{Error, LogicalDevice, Result, Tensors};
use tch::Tensor;

/// Puts the parts of every tensor together along `dim`, on any device, whether or not it has a
/// replica. A part that is a single number counts as one of length 1, so that numbers become a
/// vector; PyTorch does so with a warning.
///
/// # Errors
/// [`Error::Argument`] for no parts, or parts with different numbers of tensors;
/// [`Error::Tensor`] for shapes that do not fit.
pub fn gather<T: Tensors>(parts: &[T], destination: LogicalDevice, dim: i64) -> Result<T> {
    gather_traced(parts, destination, dim, &Trace::off())
}

pub(super) fn gather_traced<T: Tensors>(
    parts: &[T],
    destination: LogicalDevice,
    dim: i64,
    trace: &Trace,
) -> Result<T> {
    let tensors: Vec<Vec<Tensor>> = parts.iter().map(list).collect();
    let counts: Vec<_> = tensors.iter().map(Vec::len).collect();
    let (Some(pattern), Some(&count)) = (parts.first(), counts.first()) else {
        return Err(Error::Argument {
            what: "parts".into(),
            found: "none".into(),
            expected: "those of at least one replica".into(),
        });
    };
    if counts.iter().any(|other| *other != count) {
        return Err(Error::Argument {
            what: "outputs".into(),
            found: format!("{counts:?} tensors, replica by replica"),
            expected: "the same number from each, so that they can be put together".into(),
        });
    }
    let mut span = trace.begin(Step::Gather, destination);
    let _on = destination.guard()?;
    let mut gathered = Vec::new();
    for index in 0..count {
        let column: Vec<_> = tensors.iter().map(|part| part[index].shallow_clone()).collect();
        column.iter().for_each(|part| span.copied(part, destination));
        let whole = concatenate(&column, destination, dim)?;
        span.shape(&whole);
        gathered.push(whole);
    }
    span.end();
    Ok(fill(pattern, gathered))
}

/// One copy of each part, straight to its place: what lies on another GPU goes through a copy here.
fn concatenate(parts: &[Tensor], destination: LogicalDevice, dim: i64) -> Result<Tensor> {
    let parts = parts
        .iter()
        .map(|part| {
            let part = part.f_detach().map_err(Error::tensor("gather"))?;
            let part = if part.dim() == 0 {
                part.f_unsqueeze(0).map_err(Error::tensor("gather"))?
            } else {
                part
            };
            match destination {
                LogicalDevice::Cpu(_) if part.device() == tch::Device::Cpu => Ok(part),
                _ => destination.copy_of(&part),
            }
        })
        .collect::<Result<Vec<_>>>()?;
    Tensor::f_cat(&parts, dim).map_err(Error::tensor("gather"))
}
