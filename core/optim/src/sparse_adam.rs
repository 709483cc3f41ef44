//! Adam for sparse gradients: `torch.optim.SparseAdam`.

use super::rule_parts::*;
use c10d_sys::arithmetic::{add_number_, mul_number_};
use tch::Tensor;

options! {
    /// PyTorch's keyword arguments of `SparseAdam`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct SparseAdamOptions {
        /// The learning rate.
        pub lr: f64 = 1e-3,
        /// The decay rates of the moving averages of the gradient and of its square.
        pub betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator of a step, which could be 0.
        pub eps: f64 = 1e-8,
        /// Whether to maximize the objective instead of minimizing it.
        pub maximize: bool = false,
    }
}

/// `torch.optim.SparseAdam`, bit for bit: Adam for sparse gradients. Only the rows that the
/// gradient contains, and their averages, change in a step.
///
/// ```
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::nn::{EmbeddingOptions, embedding};
/// use tch_parallel::optim::{Optimizer, SparseAdam, SparseAdamOptions};
///
/// let vs = VarStore::new(Device::Cpu);
/// let options = EmbeddingOptions { sparse: true, ..Default::default() };
/// let words = embedding(vs.root(), 1000, 8, options);
/// let mut optimizer = SparseAdam::new(&vs, SparseAdamOptions::default())?;
/// let before = words.ws.copy();
/// Tensor::from_slice(&[3i64, 7]).apply(&words).sum(Kind::Float).backward();
/// optimizer.step()?;
/// let changed = words.ws.ne_tensor(&before).any_dim(1, false);
/// assert_eq!(changed.nonzero().view(-1), Tensor::from_slice(&[3i64, 7]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub type SparseAdam = ParamGroupOptimizer<SparseAdamOptions>;

group_options!(SparseAdamOptions { lr, momentum: betas.0, maximize });

impl UpdateRule for SparseAdamOptions {
    fn name(&self) -> &'static str {
        "SparseAdam"
    }

    fn check(&self) -> Result<()> {
        for (what, value) in named!(self.lr, self.eps) {
            check(value > 0.0, what, value, "a number above 0")?;
        }
        check_betas(self.betas)
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        ADAM_STATE.to_vec()
    }

    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Sparse
    }

    /// `torch.optim._functional.sparse_adam`
    fn step(&self, step: Step<'_>) -> Result<()> {
        let Self { lr, betas: (beta1, beta2), eps, .. } = *self;
        let Step { mut parameters, gradients, states } = step;
        let tensors = parameters.iter_mut().zip(gradients.iter()).zip(states);
        for ((parameter, gradient), state) in tensors {
            check(!parameter.f_is_complex()?, "a parameter", "complex", "real for SparseAdam")?;
            let mut exp_avg = state.zeros_like("exp_avg", parameter)?;
            let mut exp_avg_sq = state.zeros_like("exp_avg_sq", parameter)?;
            let step = state.count_step()?;
            // An index that appears twice would be squared in parts.
            let gradient = gradient.f_coalesce()?;
            let values = gradient.f_internal_values()?;
            if values.numel() == 0 {
                continue;
            }
            // Moves the average of these rows towards `end`, and returns it.
            let move_average = |average: &mut Tensor, end: &Tensor, beta: f64| {
                let old = average.f_sparse_mask(&gradient)?.f_internal_values()?;
                let mut update = end.f_sub(&old)?;
                mul_number_(&mut update, 1.0 - beta)?;
                let _ = average.f_add_(&with_values(&gradient, &update)?)?;
                update.f_add_(&old)
            };
            let mut direction = move_average(&mut exp_avg, &values, beta1)?;
            let mut denominator =
                move_average(&mut exp_avg_sq, &values.f_square()?, beta2)?.f_sqrt_()?;
            add_number_(&mut denominator, eps)?;
            let bias_correction1 = 1.0 - beta1.powf(step);
            let bias_correction2 = 1.0 - beta2.powf(step);
            let step_size = lr * bias_correction2.sqrt() / bias_correction1;
            let _ = direction.f_div_(&denominator)?;
            mul_number_(&mut direction, -step_size)?;
            let _ = parameter.f_add_(&with_values(&gradient, &direction)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Adagrad, AdagradOptions, Adam, AdamOptions, Optimizer, Sgd, SgdOptions};
    use super::*;
    use tch::{Device, Kind, nn, nn::VarStore};

    /// A store with a layer and an embedding whose gradients are sparse, after a backward pass.
    pub(crate) fn embedding() -> VarStore {
        let vs = VarStore::new(Device::Cpu);
        let sparse = nn::EmbeddingConfig { sparse: true, ..Default::default() };
        let layer = nn::linear(vs.root() / "layer", 3, 2, Default::default());
        let words = nn::embedding(vs.root() / "words", 5, 3, sparse);
        Tensor::from_slice(&[1i64, 3]).apply(&words).apply(&layer).sum(Kind::Float).backward();
        vs
    }

    #[test]
    fn a_gradient_of_the_wrong_layout_is_refused_by_name_and_nothing_changes() {
        let vs = embedding();
        let layer = vs.variables()["layer.weight"].copy();
        let mut adam = Adam::new(&vs, AdamOptions::default()).unwrap();
        let expected = "the gradient of words.weight, for Adam, is sparse, but must be dense; SparseAdam, Adagrad and \
                        SGD support sparse gradients";
        assert_eq!(adam.step().unwrap_err().to_string(), expected);
        let mut sparse_adam = SparseAdam::new(&vs, SparseAdamOptions::default()).unwrap();
        let expected = "the gradient of layer.bias, for SparseAdam, is dense, but must be sparse; Adam supports dense \
                        gradients";
        assert_eq!(sparse_adam.step().unwrap_err().to_string(), expected);
        assert_eq!(vs.variables()["layer.weight"], layer);
        assert_eq!((adam.state_bytes(), sparse_adam.state_bytes()), (0, 0));
    }

    #[test]
    fn weight_decay_of_sparse_gradients_is_an_error_and_no_panic() {
        let options = AdagradOptions { weight_decay: 0.1, ..Default::default() };
        let error = Adagrad::new(&embedding(), options).unwrap().step().unwrap_err();
        assert_eq!(error.to_string(), "weight_decay is 0.1 with a sparse gradient, but must be 0");
        let options = SgdOptions { weight_decay: 0.1, ..Default::default() };
        let error = Sgd::new(&embedding(), options).unwrap().step().unwrap_err().to_string();
        assert!(error.contains("add(sparse, dense) is not supported"), "{error}");
    }
}
