//! A reducer refuses what PyTorch's would answer with undefined behaviour or by waiting for itself.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

use c10d_sys::{GradBucket, Reducer, ReducerOptions, Result, set_bucket_order};
use common::{FLOAT, Rank, with_ranks};
use std::sync::{Arc, Mutex};
use tch::{Kind, Tensor};
use tests::run_by;

fn weight() -> Tensor {
    Tensor::ones([2], FLOAT).set_requires_grad(true)
}

fn reducer(rank: &Rank, parameters: &[Tensor]) -> Result<Reducer> {
    let (names, options) = (["weight", "tied"], ReducerOptions::default());
    Reducer::new(&rank.shared, parameters, &names, &[false; 2], "model", &[1 << 20], options)
}

#[run_by(with_ranks(1))]
fn a_parameter_is_given_once(rank: Rank) {
    let weight = weight();
    let error = reducer(&rank, &[weight.shallow_clone(), weight]).unwrap_err();
    assert_eq!(error.message(), "tied is a parameter twice");
}

#[run_by(with_ranks(1))]
fn an_order_of_buckets_that_names_a_parameter_twice_changes_nothing(rank: Rank) {
    let parameters = [weight(), weight()];
    let mut reducer = reducer(&rank, &parameters).unwrap();
    set_bucket_order(&[parameters[0].shallow_clone(), parameters[0].shallow_clone()]).unwrap();
    for _ in 0..2 {
        reducer.prepare_for_forward().unwrap();
        reducer.rebuild_buckets().unwrap();
        let loss = (&parameters[0] * 2.0 + &parameters[1] * 3.0).sum(Kind::Float);
        reducer.prepare_for_backward(&[loss.shallow_clone()]).unwrap();
        loss.backward();
    }
    assert_eq!(parameters[0].grad(), Tensor::full([2], 4, FLOAT));
    assert_eq!(parameters[1].grad(), Tensor::full([2], 6, FLOAT));
}

#[run_by(with_ranks(1))]
fn a_hook_that_asks_its_own_reducer_gets_an_error(rank: Rank) {
    let parameters = [weight(), weight()];
    let reducer = Arc::new(Mutex::new(reducer(&rank, &parameters).unwrap()));
    let (answers, own) = (Arc::new(Mutex::new(Vec::new())), reducer.clone());
    let seen = answers.clone();
    let hook = move |bucket: &mut GradBucket| -> Result<c10d_sys::Finish> {
        let mut own = own.lock().unwrap();
        let number = own.logged_number("rank").map(drop);
        let text = own.logged_text("module_name").map(drop);
        seen.lock().unwrap().extend([number, text, own.set_uneven_input_join()]);
        let buffer = bucket.buffer()?;
        Ok(Box::new(move || Ok(buffer)))
    };
    reducer.lock().unwrap().register_comm_hook("asks", hook).unwrap();
    reducer.lock().unwrap().prepare_for_forward().unwrap();
    let loss = (&parameters[0] + &parameters[1]).sum(Kind::Float);
    reducer.lock().unwrap().prepare_for_backward(&[]).unwrap();
    loss.backward();
    let answers = answers.lock().unwrap();
    assert_eq!(answers.len(), 3);
    for answer in answers.iter() {
        let error = answer.as_ref().unwrap_err();
        assert!(error.message().contains("its communication hook was running"), "{error}");
    }
}
