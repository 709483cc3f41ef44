//! Which options are refused.

use super::*;
use crate::*;

/// Why the defaults are refused after this change.
fn refused<R: UpdateRule + Default>(change: impl Fn(&mut R)) -> String {
    let mut options = R::default();
    assert!(ParamGroupOptimizer::from_named_parameters(Vec::new(), options.clone()).is_ok());
    change(&mut options);
    let refused = ParamGroupOptimizer::from_named_parameters(Vec::new(), options);
    refused.unwrap_err().to_string()
}

#[test]
fn options_that_pytorch_refuses_are_refused_by_every_optimizer() {
    let initial = |o: &mut AdagradOptions| o.initial_accumulator_value = -0.1;
    let not_negative = [
        ("lr is -0.1", refused(|o: &mut SgdOptions| o.lr = -0.1)),
        ("lr is NaN", refused(|o: &mut SgdOptions| o.lr = f64::NAN)),
        ("momentum is -1", refused(|o: &mut SgdOptions| o.momentum = -1.0)),
        ("weight_decay is -1", refused(|o: &mut SgdOptions| o.weight_decay = -1.0)),
        ("lr is -1", refused(|o: &mut AdamOptions| o.lr = -1.0)),
        ("eps is NaN", refused(|o: &mut AdamOptions| o.eps = f64::NAN)),
        ("weight_decay is -0.1", refused(|o: &mut AdamOptions| o.weight_decay = -0.1)),
        ("lr is -0.1", refused(|o: &mut NAdamOptions| o.lr = -0.1)),
        ("eps is NaN", refused(|o: &mut NAdamOptions| o.eps = f64::NAN)),
        ("weight_decay is -0.1", refused(|o: &mut NAdamOptions| o.weight_decay = -0.1)),
        ("momentum_decay is -0.1", refused(|o: &mut NAdamOptions| o.momentum_decay = -0.1)),
        ("lr is -0.1", refused(|o: &mut RAdamOptions| o.lr = -0.1)),
        ("eps is NaN", refused(|o: &mut RAdamOptions| o.eps = f64::NAN)),
        ("weight_decay is -0.1", refused(|o: &mut RAdamOptions| o.weight_decay = -0.1)),
        ("lr is -0.1", refused(|o: &mut RmsPropOptions| o.lr = -0.1)),
        ("eps is NaN", refused(|o: &mut RmsPropOptions| o.eps = f64::NAN)),
        ("momentum is -0.1", refused(|o: &mut RmsPropOptions| o.momentum = -0.1)),
        ("weight_decay is -0.1", refused(|o: &mut RmsPropOptions| o.weight_decay = -0.1)),
        ("alpha is -0.1", refused(|o: &mut RmsPropOptions| o.alpha = -0.1)),
        ("lr is -0.1", refused(|o: &mut AdagradOptions| o.lr = -0.1)),
        ("eps is NaN", refused(|o: &mut AdagradOptions| o.eps = f64::NAN)),
        ("lr_decay is -0.1", refused(|o: &mut AdagradOptions| o.lr_decay = -0.1)),
        ("weight_decay is -0.1", refused(|o: &mut AdagradOptions| o.weight_decay = -0.1)),
        ("initial_accumulator_value is -0.1", refused(initial)),
        ("lr is -0.1", refused(|o: &mut AdadeltaOptions| o.lr = -0.1)),
        ("eps is NaN", refused(|o: &mut AdadeltaOptions| o.eps = f64::NAN)),
        ("weight_decay is -0.1", refused(|o: &mut AdadeltaOptions| o.weight_decay = -0.1)),
    ];
    for (found, refused) in not_negative {
        assert_eq!(refused, format!("{found}, but must be a number not below 0"));
    }
    for (found, refused) in [
        ("betas.0 is 1", refused(|o: &mut AdamOptions| o.betas.0 = 1.0)),
        ("betas.1 is NaN", refused(|o: &mut AdamOptions| o.betas.1 = f64::NAN)),
        ("betas.0 is 1", refused(|o: &mut NAdamOptions| o.betas.0 = 1.0)),
        ("betas.1 is -0.1", refused(|o: &mut NAdamOptions| o.betas.1 = -0.1)),
        ("betas.0 is 1", refused(|o: &mut RAdamOptions| o.betas.0 = 1.0)),
        ("betas.1 is -0.1", refused(|o: &mut RAdamOptions| o.betas.1 = -0.1)),
        ("betas.0 is 1", refused(|o: &mut SparseAdamOptions| o.betas.0 = 1.0)),
        ("betas.1 is -0.1", refused(|o: &mut SparseAdamOptions| o.betas.1 = -0.1)),
    ] {
        assert_eq!(refused, format!("{found}, but must be at least 0 and below 1"));
    }
    let positive = "a number above 0";
    let nesterov = refused(|o: &mut SgdOptions| o.nesterov = true);
    let with_momentum = "used with a momentum above 0 and a dampening of 0";
    for (found, expected, refused) in [
        ("lr is 0", positive, refused(|o: &mut SparseAdamOptions| o.lr = 0.0)),
        ("eps is NaN", positive, refused(|o: &mut SparseAdamOptions| o.eps = f64::NAN)),
        ("rho is 1.1", "a number from 0 to 1", refused(|o: &mut AdadeltaOptions| o.rho = 1.1)),
        ("nesterov is set with momentum 0 and dampening 0", with_momentum, nesterov),
    ] {
        assert_eq!(refused, format!("{found}, but must be {expected}"));
    }
}

#[test]
fn a_store_without_a_trainable_variable_is_refused() {
    let nothing = VarStore::new(Device::Cpu);
    let error = Sgd::new(&nothing, SgdOptions::default()).unwrap_err().to_string();
    assert!(error.contains("without a trainable variable"), "{error}");
}
