//! Which parameters a step gets at once.

use super::*;
use crate::rule_parts::group_options;

/// Records how many parameters each step gets.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
struct Counting {
    lr: f64,
    maximize: bool,
    foreach: Option<bool>,
    #[serde(skip)]
    lengths: std::rc::Rc<std::cell::RefCell<Vec<usize>>>,
}

group_options!(Counting { lr, maximize, foreach });

impl UpdateRule for Counting {
    fn name(&self) -> &'static str {
        "Counting"
    }

    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Any
    }

    fn step(&self, step: Step<'_>) -> Result<()> {
        let count = step.parameters.len();
        assert_eq!([step.gradients.len(), step.states.len()], [count; 2]);
        self.lengths.borrow_mut().push(count);
        Ok(())
    }
}

#[test]
fn with_foreach_a_step_gets_all_dense_parameters_of_a_kind_at_once_and_otherwise_one() {
    let of_kind = |kind| Tensor::ones([4, 2], (kind, Device::Cpu)).set_requires_grad(true);
    let [a, b, double, idle] = [Kind::Float, Kind::Float, Kind::Double, Kind::Float].map(of_kind);
    let table = of_kind(Kind::Half);
    (a.sum(None) + b.sum(None) + double.sum(None)).backward();
    let (padding_idx, scale_grad_by_freq, sparse) = (-1, false, true);
    let row = Tensor::from_slice(&[1i64]);
    Tensor::embedding(&table, &row, padding_idx, scale_grad_by_freq, sparse).sum(None).backward();
    let parameters = [a, double, b, table, idle].into_iter().enumerate();
    let parameters: Vec<_> = parameters.map(|(i, tensor)| (i.to_string(), tensor)).collect();
    let lengths = |foreach| {
        let parameters = parameters.iter().map(|(name, t)| (name.clone(), t.shallow_clone()));
        let options = Counting { foreach, ..Default::default() };
        let lengths = options.lengths.clone();
        let mut optimizer =
            ParamGroupOptimizer::from_named_parameters(parameters.collect(), options).unwrap();
        optimizer.step().unwrap();
        lengths.take()
    };
    assert_eq!(lengths(Some(true)), [2, 1, 1]);
    assert_eq!(lengths(Some(false)), [1; 4]);
    // PyTorch's default, for parameters on the CPU.
    assert_eq!(lengths(None), [1; 4]);
}

#[test]
fn foreach_is_saved_if_it_is_set_and_older_states_are_loaded_without_it() {
    let vs = store();
    let options = SgdOptions { foreach: Some(true), ..sgd() };
    let mut optimizer = Sgd::new(&vs, options).unwrap();
    let state = optimizer.state_dict().unwrap();
    assert_eq!(state.param_groups[0].options["foreach"], true);
    let older = Sgd::new(&vs, sgd()).unwrap().state_dict().unwrap();
    assert_eq!(older.param_groups[0].options.get("foreach"), None);
    optimizer.load_state_dict(&older).unwrap();
    assert_eq!(optimizer.param_groups()[0].options.foreach, None);
    optimizer.load_state_dict(&state).unwrap();
    assert_eq!(optimizer.param_groups()[0].options.foreach, Some(true));
}
