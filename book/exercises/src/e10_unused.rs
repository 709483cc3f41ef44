//! Find the unused parameters (chapter: unused-parameters.md)
//!
//! After a backward pass, return the names of the parameters that have no gradient on any rank, in the given order and on every
//! rank. Such a parameter could be removed; one that another rank uses could not. `grad().defined()` says what this rank has.

use crate::prelude::*;

pub fn unused(group: &ProcessGroup, parameters: &[(&str, Tensor)]) -> Result<Vec<String>> {
    todo!("find out which gradients exist on at least one rank")
}

pub fn check(
    group: &ProcessGroup,
    unused: impl Fn(&ProcessGroup, &[(&str, Tensor)]) -> Result<Vec<String>>,
) -> Result<()> {
    let parameters = ["z", "both", "first", "a", "second"].map(|it| (it, one_weight(&[1.0]).1));
    let used = [[1, 2], [1, 4]][group.rank()];
    used.map(|number: usize| parameters[number].1.sum(Kind::Float).backward());
    agree_equal(group, "the list", unused(group, &parameters)?, vec!["z".into(), "a".into()])
}
