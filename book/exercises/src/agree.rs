//! What a check compares. All ranks learn of a difference on any of them, and so fail together.

use crate::prelude::{ProcessGroup, Result, Tensor};
use anyhow::bail;
use std::fmt::Debug;
use tch::Kind;

/// Numbers that may differ by rounding.
pub fn agree(group: &ProcessGroup, what: &str, found: &Tensor, expected: &Tensor) -> Result<()> {
    agree_equal(group, &format!("the shape of {what}"), found.size(), expected.size())?;
    let [found, expected] = [found, expected].map(|it| it.detach().to_kind(Kind::Double));
    let is_close = found.allclose(&expected, 1e-5, 1e-7, false);
    let [found, expected] = [found, expected].map(|it| Vec::<f64>::try_from(it.flatten(0, -1)));
    report(group, what, is_close, &found?, &expected?)
}

/// Anything else.
pub fn agree_equal<T: Debug + PartialEq>(
    group: &ProcessGroup,
    what: &str,
    found: T,
    expected: T,
) -> Result<()> {
    report(group, what, found == expected, &found, &expected)
}

fn report(
    group: &ProcessGroup,
    what: &str,
    is_right: bool,
    found: &dyn Debug,
    expected: &dyn Debug,
) -> Result<()> {
    let rank = group.rank();
    let wrong = (!is_right)
        .then(|| format!("{what} on rank {rank}: {found:?}, but it should be {expected:?}"));
    match group.all_gather_object(&wrong)?.into_iter().flatten().next() {
        Some(wrong) => bail!(wrong),
        None => Ok(()),
    }
}
