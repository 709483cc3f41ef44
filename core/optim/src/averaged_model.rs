//! Averages of a model's weights over its training: `torch.optim.swa_utils`.

use super::tensor_list::{TensorList, by_device_and_kind};
use crate::{Error, Result, check::check};
use c10d_sys::arithmetic::mul_number_;
use tch::{Kind, TchError, Tensor, nn::VarStore, no_grad};
use tch_parallel_base::parameters::{named_buffers, named_parameters};

/// PyTorch's keyword arguments of `AveragedModel`, with its defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AveragedModelOptions {
    /// How models are weighted: `avg_fn` or `multi_avg_fn`.
    pub averaging: Averaging,
    /// Whether buffers are averaged too; otherwise they are copied with each update.
    pub use_buffers: bool,
}

/// How [`AveragedModel`] weights the models that it has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Averaging {
    /// Equally: stochastic weight averaging.
    #[default]
    Swa,
    /// Later models count more: an exponential moving average. `get_ema_multi_avg_fn(decay)`
    Ema {
        /// The weight of the average so far; PyTorch's default is 0.999.
        decay: f64,
    },
}

/// Keeps a second model's weights at the average of those of a model in training. `torch.optim.swa_utils.AveragedModel`
///
/// ```
/// use tch::{Device, nn};
/// use tch_parallel::optim::{AveragedModel, AveragedModelOptions, Averaging};
///
/// let net = |vs: &nn::VarStore| nn::linear(vs.root() / "fc", 4, 3, Default::default());
/// let (vs, averaged_vs) = (nn::VarStore::new(Device::Cpu), nn::VarStore::new(Device::Cpu));
/// let (model, averaged_model) = (net(&vs), net(&averaged_vs));
/// let averaging = Averaging::Ema { decay: 0.99 };
/// let options = AveragedModelOptions { averaging, ..Default::default() };
/// let mut ema = AveragedModel::new(&averaged_vs, &vs, options)?;
/// // After each step of the optimizer:
/// ema.update_parameters()?;
/// // Evaluate with `averaged_model`.
/// # let _ = (model, averaged_model);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct AveragedModel {
    averaging: Averaging,
    /// Each average and its model's tensor.
    averaged: Vec<(Tensor, Tensor)>,
    /// Buffers that follow the model's.
    copied: Vec<(Tensor, Tensor)>,
    n_averaged: u64,
}

impl AveragedModel {
    /// Copies the variables of `model` into those of `averaged`, the store of a model that was built in the same way.
    ///
    /// # Errors
    /// [`Error::Argument`] if the stores have different variables, or for a decay outside 0 to 1.
    pub fn new(
        averaged: &VarStore,
        model: &VarStore,
        options: AveragedModelOptions,
    ) -> Result<Self> {
        let AveragedModelOptions { averaging, use_buffers } = options;
        if let Averaging::Ema { decay } = averaging {
            check((0.0..=1.0).contains(&decay), "decay", decay, "from 0 to 1")?;
        }
        let mut weights = pairs(named_parameters(averaged), named_parameters(model))?;
        let mut copied = pairs(named_buffers(averaged), named_buffers(model))?;
        copy(&weights)?;
        copy(&copied)?;
        if use_buffers {
            weights.append(&mut copied);
        }
        Ok(AveragedModel { averaging, averaged: weights, copied, n_averaged: 0 })
    }

    /// Adds the model's current weights to the average. The first call copies them. `update_parameters(model)`
    ///
    /// # Errors
    /// [`Error::Tensor`] if an operation fails.
    pub fn update_parameters(&mut self) -> Result<()> {
        if self.n_averaged == 0 {
            copy(&self.averaged)?;
        } else {
            let lists = by_device_and_kind(&self.averaged, |(average, _)| average);
            no_grad(|| lists.iter().try_for_each(|pairs| self.update(pairs)))?;
        }
        copy(&self.copied)?;
        self.n_averaged += 1;
        Ok(())
    }

    /// The number of models in the average. Save it with the averaged weights.
    pub fn n_averaged(&self) -> u64 {
        self.n_averaged
    }

    /// Goes on from weights that are the average of this many models.
    pub fn set_n_averaged(&mut self, n_averaged: u64) {
        self.n_averaged = n_averaged;
    }

    /// Updates averages of one kind on one device.
    fn update(&self, pairs: &[&(Tensor, Tensor)]) -> Result<()> {
        let averages = pairs.iter().map(|(average, _)| average.shallow_clone());
        let mut averages = TensorList::from(averages.collect::<Vec<_>>());
        let models = pairs.iter().map(|(average, model)| model.f_to(average.device()));
        let models = TensorList::from(models.collect::<Result<Vec<_>, _>>()?);
        let is_whole = !averages[0].f_is_floating_point()? && !averages[0].f_is_complex()?;
        match self.averaging {
            Averaging::Ema { decay } if !is_whole => averages.lerp_(&models, 1.0 - decay),
            // On GPUs, PyTorch has another formula, whose weight is a `float32`.
            Averaging::Swa if !is_whole && averages.is_foreach() => {
                averages.lerp_(&models, f64::from(1.0 / (self.n_averaged + 1) as f32))
            }
            _ => averages
                .iter_mut()
                .zip(models.iter())
                .try_for_each(|(average, model)| Ok(average.f_copy_(&self.next(average, model)?)?)),
        }
    }

    /// The average with the next model in it, by a formula that also suits whole numbers.
    fn next(&self, average: &Tensor, model: &Tensor) -> Result<Tensor, TchError> {
        match self.averaging {
            Averaging::Ema { decay } => {
                let times = |tensor: &Tensor, factor| {
                    let mut product = tensor.f_to_kind(Kind::Float)?;
                    mul_number_(&mut product, factor)?;
                    Ok::<_, TchError>(product)
                };
                times(average, decay)?.f_add(&times(model, 1.0 - decay)?)
            }
            Averaging::Swa => {
                let count = Tensor::from((self.n_averaged + 1) as i64).f_to(average.device())?;
                average.f_add(&model.f_sub(average)?.f_div(&count)?)
            }
        }
    }
}

/// Variables of two stores with the same names and sizes.
fn pairs(
    averaged: Vec<(String, Tensor)>,
    model: Vec<(String, Tensor)>,
) -> Result<Vec<(Tensor, Tensor)>> {
    let describe = |variables: &[(String, Tensor)]| -> Vec<(String, Vec<i64>, Kind)> {
        let each = |(name, tensor): &(String, Tensor)| (name.clone(), tensor.size(), tensor.kind());
        variables.iter().map(each).collect()
    };
    let (theirs, ours) = (describe(&model), describe(&averaged));
    if let Some(other) = (0..theirs.len().max(ours.len())).find(|&i| theirs.get(i) != ours.get(i)) {
        let found = format!("a store with {:?}", ours.get(other));
        let expected = format!("built as the model's, with {:?}", theirs.get(other));
        return Err(Error::argument("averaged", found, expected));
    }
    let tensors = averaged.into_iter().zip(model);
    Ok(tensors.map(|((_, averaged), (_, model))| (averaged, model)).collect())
}

fn copy(pairs: &[(Tensor, Tensor)]) -> Result<()> {
    no_grad(|| pairs.iter().try_for_each(|(to, from)| Ok(to.shallow_clone().f_copy_(from)?)))
}
