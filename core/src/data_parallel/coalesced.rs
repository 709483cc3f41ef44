//! Many tensors between devices in few copies: `torch.cuda.comm`.
//!
//! A copy between GPUs takes some microseconds for the smallest tensor too, so tensors first share one buffer.

use crate::{Error, LogicalDevice, Result};
use c10d_sys::tensor::{add_parts, copy_parts};
use tch::{Kind, Tensor};

/// PyTorch's `buffer_size`.
const BUFFER_BYTES: usize = 10 << 20;

/// Copies the sources, which are on one device, to the tensors of other devices. `torch.cuda.comm.broadcast_coalesced`
pub(super) fn broadcast_coalesced(
    sources: &[Tensor],
    copies: &[(LogicalDevice, Vec<Tensor>)],
) -> Result<()> {
    for buffer in take_tensors(sources, BUFFER_BYTES) {
        let flat = flatten(sources, &buffer)?;
        for (device, copies) in copies {
            let flat = device.copy_of(&flat)?;
            let _on = device.guard()?;
            copy_parts(&select(copies, &buffer), &flat).map_err(Error::engine("replicate"))?;
        }
    }
    Ok(())
}

/// Adds the tensors, which are on one device, to the sums on another. `torch.cuda.comm.reduce_add_coalesced`
pub(super) fn reduce_add_coalesced(
    sums: &[Tensor],
    tensors: &[Tensor],
    device: LogicalDevice,
) -> Result<()> {
    for buffer in take_tensors(tensors, BUFFER_BYTES) {
        let flat = device.copy_of(&flatten(tensors, &buffer)?)?;
        let _on = device.guard()?;
        add_parts(&select(sums, &buffer), &flat).map_err(Error::engine("reduce gradients"))?;
    }
    Ok(())
}

/// Which tensors share a buffer: those of one kind, in order, that fit. `torch._utils._take_tensors`
fn take_tensors(tensors: &[Tensor], limit: usize) -> Vec<Vec<usize>> {
    let mut full = Vec::new();
    let mut filling: Vec<(Kind, Vec<usize>, usize)> = Vec::new();
    for (index, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.numel() > 0) {
        let kind = tensor.kind();
        let bytes = tensor.numel() * kind.elt_size_in_bytes();
        match filling.iter_mut().find(|(other, ..)| *other == kind) {
            None => filling.push((kind, vec![index], bytes)),
            Some((_, buffer, size)) if *size + bytes > limit => {
                full.push(std::mem::replace(buffer, vec![index]));
                *size = bytes;
            }
            Some((_, buffer, size)) => {
                buffer.push(index);
                *size += bytes;
            }
        }
    }
    full.extend(filling.into_iter().map(|(_, buffer, _)| buffer));
    full
}

fn flatten(tensors: &[Tensor], buffer: &[usize]) -> Result<Tensor> {
    let _on = LogicalDevice::of(&tensors[buffer[0]]).guard()?;
    Ok(Tensor::f_flatten_dense_tensors(&select(tensors, buffer))?)
}

fn select(tensors: &[Tensor], buffer: &[usize]) -> Vec<Tensor> {
    buffer.iter().map(|&index| tensors[index].shallow_clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, no_grad};

    const THERE: LogicalDevice = LogicalDevice::Cpu(1);

    fn zeros(kind: Kind, count: i64) -> Tensor {
        Tensor::zeros([count], (kind, Device::Cpu))
    }

    /// What a model has: a matrix, its transposed, an empty one, counts and half precision.
    fn variables() -> Vec<Tensor> {
        let float = |size: &[i64]| Tensor::rand(size, (Kind::Float, Device::Cpu));
        vec![
            float(&[3, 4]),
            float(&[4, 3]).tr(),
            float(&[0, 2]),
            Tensor::from(7i64),
            float(&[5]).to_kind(Kind::Half),
            float(&[]),
        ]
    }

    fn like(tensors: &[Tensor]) -> Vec<Tensor> {
        let _on = THERE.guard().unwrap();
        tensors.iter().map(|tensor| tensor.zeros_like()).collect()
    }

    #[test]
    fn buffers_hold_tensors_of_one_kind_in_order_up_to_a_limit() {
        let floats = |counts: &[i64]| -> Vec<_> {
            counts.iter().map(|&count| zeros(Kind::Float, count)).collect()
        };
        assert_eq!(take_tensors(&floats(&[2, 1, 1]), 12), [vec![0, 1], vec![2]]);
        // One that is too large for any buffer has one of its own.
        assert_eq!(take_tensors(&floats(&[9, 1, 9]), 12), [vec![0], vec![1], vec![2]]);
        let mut mixed = floats(&[1, 1]);
        mixed.insert(1, zeros(Kind::Int64, 1));
        mixed.push(zeros(Kind::Float, 0));
        assert_eq!(take_tensors(&mixed, 12), [vec![0, 2], vec![1]]);
        // A thousand small ones are one copy.
        let small = floats(&(0..1000).collect::<Vec<i64>>());
        assert_eq!(take_tensors(&small, BUFFER_BYTES).len(), 1);
    }

    #[test]
    fn copies_get_the_values_of_their_sources_on_every_device() {
        let sources = variables();
        let copies = [(THERE, like(&sources)), (LogicalDevice::Cpu(2), like(&sources))];
        broadcast_coalesced(&sources, &copies).unwrap();
        for (source, copy) in copies.iter().flat_map(|(_, copies)| sources.iter().zip(copies)) {
            assert_eq!((copy, copy.kind()), (source, source.kind()));
            assert_eq!(copy.stride(), source.stride());
        }
    }

    #[test]
    fn sums_have_the_bits_of_additions_one_by_one() {
        let (sums, more) = (variables(), variables());
        let one_by_one: Vec<_> = sums.iter().zip(&more).map(|(a, b)| a + b).collect();
        reduce_add_coalesced(&sums, &more, LogicalDevice::Cpu(0)).unwrap();
        assert_eq!(sums, one_by_one);
    }

    #[test]
    fn a_graph_that_needs_an_overwritten_copy_notices_it() {
        let weight = Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let loss = (&weight * &weight).sum(Kind::Float);
        let copies = [(LogicalDevice::Cpu(0), vec![weight])];
        no_grad(|| broadcast_coalesced(&[zeros(Kind::Float, 2)], &copies)).unwrap();
        let error = loss.f_backward().unwrap_err().to_string();
        assert!(error.contains("modified by an inplace operation"), "{error}");
    }
}
