//! Which values of options are refused.

use crate::Result;
pub(crate) use tch_parallel_base::check;

/// Refuses the same values for a learning rate and the like as PyTorch.
pub(crate) fn check_not_negative(options: &[(&str, f64)]) -> Result<()> {
    let refused =
        |&(what, value): &(&str, f64)| check(value >= 0.0, what, value, "a number not below 0");
    options.iter().try_for_each(refused)
}

/// Fields with their names: `named!(self.lr, self.eps)`.
macro_rules! named {
    ($($options:ident.$option:ident),+) => { [$((stringify!($option), $options.$option)),+] };
}
pub(crate) use named;
