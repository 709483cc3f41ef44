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

/// Each option with its value, and why the defaults with this value are refused.
macro_rules! refusals {
    ($($Options:ident { $($option:ident $(.$index:tt)? = $value:expr),+ })+) => {
        [$($((
            format!(concat!(stringify!($option) $(, ".", stringify!($index))?, " is {}"), $value),
            refused(|options: &mut $Options| options.$option $(.$index)? = $value),
        )),+),+]
    };
}

#[test]
fn options_that_pytorch_refuses_are_refused_by_every_optimizer() {
    let not_negative = refusals! {
        SgdOptions { lr = -0.1, lr = f64::NAN, momentum = -1.0, weight_decay = -1.0 }
        AdamOptions { lr = -1.0, eps = f64::NAN, weight_decay = -0.1 }
        NAdamOptions { lr = -0.1, eps = f64::NAN, weight_decay = -0.1, momentum_decay = -0.1 }
        RAdamOptions { lr = -0.1, eps = f64::NAN, weight_decay = -0.1 }
        RmsPropOptions { lr = -0.1, eps = f64::NAN, weight_decay = -0.1 }
        RmsPropOptions { momentum = -0.1, alpha = -0.1 }
        AdagradOptions { lr = -0.1, eps = f64::NAN, lr_decay = -0.1, weight_decay = -0.1 }
        AdagradOptions { initial_accumulator_value = -0.1 }
        AdadeltaOptions { lr = -0.1, eps = f64::NAN, weight_decay = -0.1 }
    };
    for (found, refused) in not_negative {
        assert_eq!(refused, format!("{found}, but must be a number not below 0"));
    }
    let betas = refusals! {
        AdamOptions { betas.0 = 1.0, betas.1 = f64::NAN }
        NAdamOptions { betas.0 = 1.0, betas.1 = -0.1 }
        RAdamOptions { betas.0 = 1.0, betas.1 = -0.1 }
        SparseAdamOptions { betas.0 = 1.0, betas.1 = -0.1 }
    };
    for (found, refused) in betas {
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
