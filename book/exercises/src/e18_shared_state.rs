//! Share out an optimizer's state (chapter: sharding.md)
//!
//! Make a step as in the first stage of ZeRO. Parameter `i` belongs to rank `i % world_size`, and only that rank keeps
//! its momentum: 0.9 times the old one, if there is one, plus the gradient. It subtracts 0.1 times the momentum from
//! the parameter and sends the result to the other ranks. `detach` returns a tensor that shares the parameter's memory
//! and may be written to. The gradients are already equal on all ranks.

use crate::prelude::*;

/// The momentum of each parameter that this rank owns, by its number.
pub type State = BTreeMap<usize, Tensor>;

pub fn shared_state(group: &ProcessGroup, parameters: &[Tensor], state: &mut State) -> Result<()> {
    todo!("update what this rank owns, and broadcast every parameter from its owner")
}

pub fn check(
    group: &ProcessGroup,
    shared_state: impl Fn(&ProcessGroup, &[Tensor], &mut State) -> Result<()>,
) -> Result<()> {
    let parameters = [1.0, 2.0, 3.0].map(|value| one_weight(&[value]).1);
    parameters.iter().for_each(|it| product(it, &Tensor::from_slice(&[1f32])).backward());
    let mut state = State::new();
    for expected in [[0.9, 1.9, 2.9], [0.71, 1.71, 2.71]] {
        shared_state(group, &parameters, &mut state)?;
        let found = Tensor::cat(&parameters, 0);
        agree(group, "the list of parameters", &found, &Tensor::from_slice(&expected))?;
    }
    let owned = [&[0, 2][..], &[1]][group.rank()].to_vec();
    agree_equal(group, "the list of momenta", state.into_keys().collect(), owned)
}
