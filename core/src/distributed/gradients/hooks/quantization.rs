//! Gradients in 8 bits: PyTorch's `quantization_hooks`.

use super::{CommHook, Finish, GradBucket};
use crate::{Result, check, distributed::ProcessGroup};
use c10d_sys::arithmetic::{clamp_max_, clamp_min_, div_number_};
use tch::{Kind, Tensor};

/// Sends gradients as integers from 0 to 255 to all ranks, each of which adds them up: fewer bytes than
/// [`AllReduce`](super::AllReduce) up to 7 ranks.
///
/// ```
/// # use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// # use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
/// use tch_parallel::distributed::hooks::Quantization;
///
/// # let group = ProcessGroup::from_env()?;
/// # let vs = nn::VarStore::new(group.device());
/// # let module = nn::linear(vs.root(), 4, 1, Default::default());
/// let hook = Some(Box::new(Quantization::per_channel(512)?) as _);
/// let options = DdpOptions { comm_hook: hook, ..Default::default() };
/// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
/// let images = Tensor::from_slice(&[0.1f32, 0.2, 0.3, 0.4]).view([1, 4]).to(group.device());
/// model.backward(&model.forward_t(&images, true).sum(Kind::Float))?;
/// let gradient = vs.variables()["weight"].grad(); // in steps of 1/255, as the bias's gradient is 1
/// assert!(gradient.allclose(&images, 0.0, 1.0 / 255.0, false) && gradient != images);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Quantization {
    bucket_size: Option<usize>,
}

impl Quantization {
    /// One scale and zero point for each bucket. `quantization_pertensor_hook`
    pub fn per_tensor() -> Self {
        Quantization { bucket_size: None }
    }

    /// One for each `bucket_size` numbers, which loses less. PyTorch's default is 512, and 0 is an error.
    /// `quantization_perchannel_hook`
    pub fn per_channel(bucket_size: usize) -> Result<Self> {
        check(bucket_size > 0, "bucket_size", bucket_size, "at least 1")?;
        Ok(Quantization { bucket_size: Some(bucket_size) })
    }
}

impl CommHook for Quantization {
    fn name(&self) -> String {
        match self.bucket_size {
            None => "quantization_pertensor_hook".into(),
            Some(size) => format!("quantization_perchannel_hook, bucket_size={size}"),
        }
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        let buffer = bucket.buffer()?;
        let len = buffer.size1()?;
        let channels = match self.bucket_size.map(|size| size as i64) {
            None => buffer.f_unsqueeze(0)?,
            // As in PyTorch, this adds a whole row of zeros if the last row is already full.
            Some(size) => buffer.f_constant_pad_nd([0, size - len % size])?.f_view([-1, size])?,
        };
        let parameters = group.all_gather_async(scales_and_zero_points(&channels)?)?;
        let group = group.clone();
        Ok(Box::new(move || {
            let parameters = parameters.wait()?;
            let own = &parameters[group.rank()];
            // PyTorch's scale is a number, which does not promote 16 bits.
            let scaled = channels.f_div(&own.f_get(0)?)?.f_to_kind(channels.kind())?;
            let mut numbers = scaled.f_round()?.f_add(&own.f_get(1)?)?;
            clamp_min_(&mut numbers, 0.0)?;
            clamp_max_(&mut numbers, 255.0)?;
            let all = group.all_gather(&numbers.f_to_kind(Kind::Uint8)?)?;
            let mut mean = numbers.f_zeros_like()?;
            for (numbers, their) in all.iter().zip(&parameters) {
                let numbers = numbers.f_to_kind(Kind::Float)?.f_sub(&their.f_get(1)?)?;
                let _ = mean.f_add_(&numbers.f_mul(&their.f_get(0)?)?)?;
            }
            div_number_(&mut mean, group.world_size() as f64)?;
            Ok(mean.f_flatten(0, -1)?.f_narrow(0, 0, len)?.f_to_kind(buffer.kind())?)
        }))
    }
}

/// The scale and the zero point of each row, `[2, rows, 1]`. `MinMaxObserver.calculate_qparams`
fn scales_and_zero_points(channels: &Tensor) -> Result<Tensor> {
    let (lowest, highest) = channels.f_to_kind(Kind::Float)?.f_aminmax(1, true)?;
    let is_range = lowest.f_le_tensor(&highest)?.f_all()?.f_int64_value(&[])? != 0;
    check(is_range, "a gradient", "NaN", "a number, to be quantized")?;
    let zeros = lowest.f_zeros_like()?;
    let (lowest, highest) = (lowest.f_minimum(&zeros)?, highest.f_maximum(&zeros)?);
    let mut scale = highest.f_sub(&lowest)?;
    div_number_(&mut scale, 255.0)?;
    clamp_min_(&mut scale, f64::from(f32::EPSILON))?;
    let mut zero_point = lowest.f_div(&scale)?.f_round()?.f_neg()?;
    clamp_min_(&mut zero_point, 0.0)?;
    clamp_max_(&mut zero_point, 255.0)?;
    Ok(Tensor::f_stack(&[scale, zero_point], 0)?)
}
