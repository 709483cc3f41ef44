//! Which options are refused.

use super::*;
use crate::*;

/// Why the defaults are refused after this change.
fn refused<R: UpdateRule + Default>(change: impl Fn(&mut R)) -> String {
    let mut options = R::default();
    assert!(ParamGroupOptimizer::from_named_parameters(Vec::new(), options.clone()).is_ok());
    change(&mut options);
    ParamGroupOptimizer::from_named_parameters(Vec::new(), options).unwrap_err().to_string()
}

/// That each of these options is refused if it is one of the values.
macro_rules! expect_refused {
    ($values:expr, $expected:expr; $($Options:ident { $($($option:tt).+),+ })+) => {
        for value in $values {
            $($(
                let error = refused(|options: &mut $Options| options.$($option).+ = value);
                let option = stringify!($($option).+);
                assert_eq!(error, format!("{option} is {value}, but must be {}", $expected));
            )+)+
        }
    };
}

#[test]
fn options_that_pytorch_refuses_are_refused_by_every_optimizer() {
    expect_refused! {
        [-0.1, f64::NAN], "a number not below 0";
        SgdOptions { lr, momentum, weight_decay }
        AdamOptions { lr, eps, weight_decay }
        NAdamOptions { lr, eps, weight_decay, momentum_decay }
        RAdamOptions { lr, eps, weight_decay }
        RmsPropOptions { lr, eps, momentum, weight_decay, alpha }
        AdagradOptions { lr, eps, lr_decay, weight_decay, initial_accumulator_value }
        AdadeltaOptions { lr, eps, weight_decay }
    }
    expect_refused! {
        [-0.1, 1.0, f64::NAN], "at least 0 and below 1";
        AdamOptions { betas.0, betas.1 }
        NAdamOptions { betas.0, betas.1 }
        RAdamOptions { betas.0, betas.1 }
        SparseAdamOptions { betas.0, betas.1 }
    }
    expect_refused! { [0.0, f64::NAN], "a number above 0"; SparseAdamOptions { lr, eps } }
    expect_refused! { [-0.1, 1.1], "a number from 0 to 1"; AdadeltaOptions { rho } }
    let nesterov = refused(|options: &mut SgdOptions| options.nesterov = true);
    let expected = "nesterov is set with momentum 0 and dampening 0, but must be used with a momentum above 0 and a \
                    dampening of 0";
    assert_eq!(nesterov, expected);
}

#[test]
fn a_store_without_a_trainable_variable_is_refused() {
    let nothing = VarStore::new(Device::Cpu);
    let error = Sgd::new(&nothing, SgdOptions::default()).unwrap_err().to_string();
    assert!(error.contains("without a trainable variable"), "{error}");
}
