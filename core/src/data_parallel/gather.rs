//! Concatenating outputs: `torch.nn.parallel.gather`.

use super::scatter::{length, length_in};
use super::trace::{Step, Trace};
use crate::{Error, LogicalDevice, Result, Tensors, check};
use tch::Tensor;
use tch_parallel_base::tensors::{channels_last_strides, fill, list};

/// Concatenates the parts of every tensor along `dim`, on any device, whether or not that has a replica. Scalars become
/// a vector, as in PyTorch, which warns about it. Channels that are last in memory stay so. Values that are not tensors,
/// and the keys of maps, are taken from the first part. Gradients continue in the parts. The inverse of
/// [`scatter`](super::scatter()).
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::LogicalDevice;
/// use tch_parallel::data_parallel::gather;
///
/// let parts = [Tensor::from_slice(&[1i64, 2]), Tensor::from_slice(&[3i64])];
/// let whole = gather(&parts, LogicalDevice::Cpu(0), 0)?;
/// assert_eq!(whole, Tensor::from_slice(&[1i64, 2, 3]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] if there are no parts, if they have different numbers of tensors, or if shapes do not match.
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
        return Err(Error::argument("parts", "none", "the outputs of at least one replica"));
    };
    let found = format_args!("{counts:?} tensors on the replicas");
    let expected = "the same number on each, so that they can be concatenated";
    check(counts.iter().all(|other| *other == count), "outputs", found, expected)?;
    let mut span = trace.begin(Step::Gather, destination);
    let _on = destination.guard()?;
    let mut gathered = Vec::new();
    // ANCHOR: column
    for index in 0..count {
        let column: Vec<_> = tensors.iter().map(|part| part[index].shallow_clone()).collect();
        column.iter().for_each(|part| span.copied(part, destination));
        let whole = concatenate(&column, destination, dim)?;
        span.shape(&whole);
        gathered.push(whole);
    }
    // ANCHOR_END: column
    span.end();
    Ok(fill(pattern, gathered))
}

/// Copies each part straight to its place; `torch.cat` would first need all of them on the destination.
fn concatenate(parts: &[Tensor], destination: LogicalDevice, dim: i64) -> Result<Tensor> {
    let parts = parts.iter().map(Tensor::f_atleast_1d).collect::<Result<Vec<_>, _>>()?;
    let rows: Vec<_> = parts.iter().filter_map(|part| length(part, dim)).collect();
    let whole: i64 = rows.iter().sum();
    let of_whole = |part: &Tensor| {
        let mut shape = part.size();
        if let Some(length) = length_in(&mut shape, dim) {
            *length = whole;
        }
        (part.kind(), shape)
    };
    let shapes: Vec<_> = parts.iter().map(of_whole).collect();
    let (kind, shape) = &shapes[0];
    if rows.len() != parts.len() || shapes.iter().any(|other| *other != shapes[0]) {
        let found: Vec<_> = parts.iter().map(|part| (part.kind(), part.size())).collect();
        let expected = format!("of the same kind and shape, except in dimension {dim}");
        return Err(Error::argument("outputs", format!("{found:?} on the replicas"), expected));
    }
    let options = (*kind, destination.into());
    let is_last = |part: &Tensor| channels_last_strides(&part.size()) == Some(part.stride());
    let gathered = match channels_last_strides(shape).filter(|_| parts.iter().all(is_last)) {
        Some(strides) => Tensor::f_empty_strided(&shape[..], strides, options)?,
        None => Tensor::f_empty(shape, options)?,
    };
    let mut offset = 0;
    for (part, rows) in parts.iter().zip(rows) {
        gathered.f_narrow(dim, offset, rows)?.f_copy_(part)?;
        offset += rows;
    }
    Ok(gathered)
}
