//! Dividing a batch among devices: `torch.nn.parallel.scatter`.

use super::trace::{Span, Step, Trace};
use crate::tensors::{fill, list};
use crate::{Devices, Error, LogicalDevice, Result, Tensors};
use tch::Tensor;

/// Divides every tensor of `inputs` along `dim` into equal chunks, of which the last may be
/// smaller, and copies each to its device.
///
/// A chunk has rows / devices rows, rounded up, as in `torch.chunk`: 10 rows on 4 devices give 3,
/// 3, 3 and 1; 6 rows on 4 devices give 2, 2 and 2, one part fewer than there are devices. The
/// chunk for the batch's own device is a view, and nothing is copied. Chunks are detached from the
/// graph, unless there is one device and the batch is on it.
///
/// ```
/// use tch::{Device, Kind, Tensor};
/// use tch_parallel::Devices;
/// use tch_parallel::data_parallel::{gather, scatter};
///
/// let devices: Devices = "cpu:4".parse()?;
/// let batch = Tensor::arange(10, (Kind::Float, Device::Cpu));
/// let chunks = scatter(&batch, &devices, 0)?;
/// let rows: Vec<_> = chunks.iter().map(|chunk| chunk.size()[0]).collect();
/// assert_eq!(rows, [3, 3, 3, 1]);
/// assert_eq!(gather(&chunks, devices.first(), 0)?, batch);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for inputs without a tensor, without rows, or with different numbers of rows
/// (where PyTorch silently drops some); [`Error::Tensor`] if memory runs out.
pub fn scatter<T: Tensors>(inputs: &T, devices: &Devices, dim: i64) -> Result<Vec<T>> {
    scatter_traced(inputs, devices, dim, &Trace::off())
}

pub(super) fn scatter_traced<T: Tensors>(
    inputs: &T,
    devices: &Devices,
    dim: i64,
    trace: &Trace,
) -> Result<Vec<T>> {
    let chunks: Vec<Vec<Tensor>> = divide(&list(inputs), devices.len(), dim)?;
    devices
        .iter()
        .zip(chunks)
        .map(|(device, chunk)| {
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
        })
        .collect()
}

/// Copies tensors to a device, and records the bytes copied.
pub(super) fn send(
    tensors: &[Tensor],
    device: LogicalDevice,
    mut span: Span,
) -> Result<Vec<Tensor>> {
    let moved = tensors
        .iter()
        .map(|tensor| {
            span.shape(tensor);
            span.copied(tensor, device);
            device.copy_of(tensor)
        })
        .collect();
    span.end();
    moved
}

/// The chunks of all tensors, for each device that gets one.
fn divide(tensors: &[Tensor], devices: usize, dim: i64) -> Result<Vec<Vec<Tensor>>> {
    let refuse = |found: String, expected: &str| {
        Err(Error::Argument { what: "inputs".into(), found, expected: expected.into() })
    };
    let mut rows = Vec::new();
    for tensor in tensors {
        match length(tensor, dim) {
            Some(count) => rows.push(count),
            None => {
                return refuse(
                    format!(
                        "a tensor of shape {:?}, to be split along dimension {dim}",
                        tensor.size()
                    ),
                    "tensors that have this dimension; wrap in Replicated what every replica gets whole",
                );
            }
        }
    }
    match rows.first() {
        None => return refuse("without a tensor".into(), "at least one, to be split"),
        Some(0) => return refuse("a batch of 0 rows".into(), "at least one row"),
        Some(first) if rows.iter().any(|count| count != first) => {
            return refuse(
                format!("batches of {rows:?} rows"),
                "of the same number of rows, so that what belongs together stays together",
            );
        }
        Some(_) => {}
    }
    if devices == 1 {
        // Nothing is split, so a graph that leads here can stay connected.
        return Ok(vec![tensors.iter().map(Tensor::shallow_clone).collect()]);
    }
    // ANCHOR: chunk
    let rows = rows[0];
    let chunk = (rows + devices as i64 - 1) / devices as i64;
    let parts = (0..rows).step_by(chunk as usize).map(|start| {
        let length = chunk.min(rows - start);
        let narrow = |tensor: &Tensor| tensor.f_detach()?.f_narrow(dim, start, length);
        tensors.iter().map(narrow).collect::<std::result::Result<_, _>>()
    });
    // ANCHOR_END: chunk
    parts.collect::<std::result::Result<_, _>>().map_err(Error::tensor("scatter"))
}

/// The length of a tensor along a dimension, negative to count from the end; `None` if it has no
/// such dimension.
pub(super) fn length(tensor: &Tensor, dim: i64) -> Option<i64> {
    let size = tensor.size();
    let dim = if dim < 0 { dim + size.len() as i64 } else { dim };
    usize::try_from(dim).ok().and_then(|dim| size.get(dim).copied())
}
