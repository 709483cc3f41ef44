//! Dividing a batch among devices: `torch.nn.parallel.scatter`.

use super::trace::{Span, Step, Trace};
use crate::{Devices, Error, LogicalDevice, Result, Tensors, check};
use tch::{TchError, Tensor};
use tch_parallel_base::tensors::{fill, list};

/// Divides every tensor along `dim` into equal chunks, of which the last may be smaller, and copies each to its device.
///
/// A chunk has rows / devices rows, rounded up, as in `torch.chunk`: 10 rows on 4 devices give 3, 3, 3 and 1; 6 rows
/// give 2, 2 and 2, without a fourth. The chunk for the batch's own device is a view. If there is no tensor to divide,
/// every device gets the values that are not tensors. Gradients of the chunks continue in `inputs`.
///
/// ```
/// use tch::{Device, Kind, Tensor};
/// use tch_parallel::Devices;
/// use tch_parallel::data_parallel::{gather, scatter};
///
/// let devices: Devices = "4xcpu".parse()?;
/// let batch = Tensor::arange(10, (Kind::Float, Device::Cpu));
/// let chunks = scatter(&batch, &devices, 0)?;
/// let rows: Vec<_> = chunks.iter().map(|chunk| chunk.size()[0]).collect();
/// assert_eq!(rows, [3, 3, 3, 1]);
/// assert_eq!(gather(&chunks, devices.first(), 0)?, batch);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for inputs without rows or with different numbers of rows (where PyTorch
/// silently drops some); [`Error::Tensor`] if memory runs out.
pub fn scatter<T: Tensors>(inputs: &T, devices: &Devices, dim: i64) -> Result<Vec<T>> {
    scattered(inputs, devices, dim, &Trace::off())
}

/// The same without a graph: each device has a backward pass of its own. With one device, the graph stays connected.
pub(super) fn scatter_detached<T: Tensors>(
    inputs: &T,
    devices: &Devices,
    dim: i64,
    trace: &Trace,
) -> Result<Vec<T>> {
    if devices.len() == 1 {
        return scattered(inputs, devices, dim, trace);
    }
    let detached: Result<Vec<_>, TchError> = list(inputs).iter().map(Tensor::f_detach).collect();
    scattered(&fill(inputs, detached?), devices, dim, trace)
}

fn scattered<T: Tensors>(inputs: &T, devices: &Devices, dim: i64, trace: &Trace) -> Result<Vec<T>> {
    let chunks: Vec<Vec<Tensor>> = divide(&list(inputs), devices.len(), dim)?;
    let part_for = |(device, chunk): (LogicalDevice, Vec<Tensor>)| {
        let mut span = trace.begin(Step::Scatter, device);
        let mut part = inputs.shallow_clone();
        let mut copied = Ok(());
        part.visit_replicated(&mut |tensor| {
            span.copied(tensor, device);
            match device.copy_of(tensor) {
                Ok(copy) => *tensor = copy.detach(),
                Err(error) => copied = Err(error),
            }
        });
        copied?;
        Ok(fill(&part, send(&chunk, device, span)?))
    };
    devices.iter().zip(chunks).map(part_for).collect()
}

/// Copies tensors to a device, and records the bytes copied.
pub(super) fn send(tensors: &[Tensor], to: LogicalDevice, mut span: Span) -> Result<Vec<Tensor>> {
    let copy = |tensor: &Tensor| {
        span.shape(tensor);
        span.copied(tensor, to);
        to.copy_of(tensor)
    };
    let moved = tensors.iter().map(copy).collect();
    span.end();
    moved
}

/// The chunks of all tensors, for each device that gets one.
fn divide(tensors: &[Tensor], devices: usize, dim: i64) -> Result<Vec<Vec<Tensor>>> {
    let mut counts = Vec::new();
    for tensor in tensors {
        let Some(count) = length(tensor, dim) else {
            let size = tensor.size();
            let found = format!("a tensor of shape {size:?}, to be split along dimension {dim}");
            let expected = "tensors that have this dimension; wrap in Replicated what every replica gets whole";
            return Err(Error::argument("inputs", found, expected));
        };
        counts.push(count);
    }
    let Some(&rows) = counts.first() else {
        return Ok((0..devices).map(|_| Vec::new()).collect());
    };
    check(rows != 0, "inputs", "a batch of 0 rows", "at least one row")?;
    let found = format_args!("batches of {counts:?} rows");
    let expected = "of the same number of rows, so that what belongs together stays together";
    check(counts.iter().all(|count| *count == rows), "inputs", found, expected)?;
    if devices == 1 {
        return Ok(vec![tensors.iter().map(Tensor::shallow_clone).collect()]);
    }
    // ANCHOR: chunk
    let chunk = (rows + devices as i64 - 1) / devices as i64;
    let mut parts: Vec<_> = (0..rows).step_by(chunk as usize).map(|_| Vec::new()).collect();
    for tensor in tensors {
        for (part, chunk) in parts.iter_mut().zip(tensor.f_split(chunk, dim)?) {
            part.push(chunk);
        }
    }
    // ANCHOR_END: chunk
    Ok(parts)
}

/// The length of a tensor along a dimension, negative to count from the end; `None` if it has no such dimension.
pub(super) fn length(tensor: &Tensor, dim: i64) -> Option<i64> {
    length_in(&mut tensor.size(), dim).copied()
}

/// The same of a shape.
pub(super) fn length_in(shape: &mut [i64], dim: i64) -> Option<&mut i64> {
    let dim = if dim < 0 { dim + shape.len() as i64 } else { dim };
    shape.get_mut(usize::try_from(dim).ok()?)
}
