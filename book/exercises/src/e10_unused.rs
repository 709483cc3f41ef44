//! Find the unused parameters (chapter: unused-parameters.md)
//!
//! After a backward pass, return on every rank the names of the parameters that have no gradient on any rank, in the
//! given order. `grad().defined()` says whether a parameter has a gradient on this rank.

use crate::prelude::*;

pub fn unused(group: &ProcessGroup, parameters: &[(&str, Tensor)]) -> Result<Vec<String>> {
    todo!("find out which gradients exist on at least one rank")
}

pub fn check(
    group: &ProcessGroup,
    unused: impl Fn(&ProcessGroup, &[(&str, Tensor)]) -> Result<Vec<String>>,
) -> Result<()> {
    let parameters = ["z", "both", "first", "a", "second"].map(|it| (it, one_weight(&[1.0]).1));
    for number in [[1, 2], [1, 4]][group.rank()] {
        parameters[number].1.sum(Kind::Float).backward();
    }
    agree_equal(group, "the list", unused(group, &parameters)?, vec!["z".into(), "a".into()])
}
