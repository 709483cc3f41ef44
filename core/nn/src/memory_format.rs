//! The memory format of images and weights.

use crate::Result;
use tch::{Tensor, nn::VarStore};
use tch_parallel_base::{Error, tensors::channels_last_strides};

/// The same images `[N, C, H, W]`, with the channels of a pixel side by side in memory:
/// `x.to(memory_format=torch.channels_last)`.
///
/// # Errors
/// [`Error::Argument`] for a tensor of other than four dimensions.
pub fn channels_last(images: &Tensor) -> Result<Tensor> {
    let size = images.size();
    let Some(strides) = channels_last_strides(&size) else {
        return Err(Error::argument("images", format!("{size:?}"), "[N, C, H, W]"));
    };
    if images.stride() == strides {
        return Ok(images.shallow_clone());
    }
    let mut turned = Tensor::f_empty_strided(size, strides, (images.f_kind()?, images.device()))?;
    turned.f_copy_(images)?;
    Ok(turned)
}

/// `model.to(memory_format=torch.channels_last)`: applies to the variables with four dimensions, which
/// are the convolutions' weights. Call it before `DistributedDataParallel`, which depends on their layout.
pub fn channels_last_weights(vs: &VarStore) -> Result<()> {
    for mut variable in vs.variables().into_values().filter(|variable| variable.dim() == 4) {
        let values = channels_last(&variable.detach())?;
        variable.f_set_data(&values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, kind::FLOAT_CPU, nn};

    #[test]
    fn only_the_order_in_memory_changes() {
        let images = Tensor::arange(2 * 3 * 4 * 5, (Kind::Float, Device::Cpu)).view([2, 3, 4, 5]);
        let turned = channels_last(&images).unwrap();
        assert_eq!(turned, images);
        assert_eq!(turned.stride(), [60, 1, 15, 3]);
        // From PyTorch, for sizes of 1, whose strides change no element's place.
        for (size, strides) in [([8, 1, 5, 4], [20, 1, 4, 1]), ([16, 4, 1, 1], [4, 1, 4, 4])] {
            assert_eq!(channels_last(&Tensor::zeros(size, FLOAT_CPU)).unwrap().stride(), strides);
        }
    }

    #[test]
    fn a_models_weights_change_where_the_model_has_them() {
        let vs = VarStore::new(Device::Cpu);
        let conv = nn::conv2d(vs.root(), 3, 8, 5, Default::default());
        let before = conv.ws.detach().copy();
        channels_last_weights(&vs).unwrap();
        assert_eq!(conv.ws.stride(), [75, 1, 15, 3]);
        assert_eq!(conv.ws.detach(), before);
        assert!(conv.ws.requires_grad());
    }
}
