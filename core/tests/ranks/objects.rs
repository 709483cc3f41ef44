//! Exchanges of values that are not tensors.

use crate::prelude::*;

/// A host and losses.
type Report = (String, Vec<f64>);

/// The ranks' reports differ in size, and each holds a number that is not finite.
fn report(rank: usize) -> Report {
    let losses = (0..rank).map(|step| 1.0 / (step + 1) as f64);
    ("n".repeat(1 + 100 * rank), losses.chain([f64::INFINITY]).collect())
}

#[run_by(on_ranks(3))]
fn values_of_any_size_are_gathered_in_order_of_ranks_on_all_or_on_one(group: &ProcessGroup) {
    let own = report(group.rank());
    assert_eq!(group.all_gather_object(&own).unwrap(), [0, 1, 2].map(report));
    assert_eq!(group.all_gather_object(&()).unwrap(), [(); 3]);
    for dst in 0..3 {
        let expected = (group.rank() == dst).then(|| [0, 1, 2].map(report).to_vec());
        assert_eq!(group.gather_object(&own, dst).unwrap(), expected);
    }
}

#[run_by(on_ranks(3))]
fn a_value_is_copied_from_its_source(group: &ProcessGroup) {
    for src in 0..3 {
        let mut value = report(group.rank());
        group.broadcast_object(&mut value, src).unwrap();
        assert_eq!(value, report(src));
    }
    group.broadcast_object(&mut (), 1).unwrap();
    expect_error(group.broadcast_object(&mut 0, 3), "src is rank 3");
}

#[run_by(on_ranks(2))]
fn a_value_of_another_type_is_an_error(group: &ProcessGroup) {
    let expected = "all_gather_object failed: ";
    match group.rank() {
        0 => expect_error(group.all_gather_object(&"text".to_owned()), expected),
        _ => expect_error(group.all_gather_object(&u64::MAX), expected),
    }
}

#[run_by(on_ranks(3))]
fn each_rank_gets_its_value_of_the_source(group: &ProcessGroup) {
    let reports = [1, 2, 3].map(report);
    for src in 0..3 {
        let list = (group.rank() == src).then_some(&reports[..]);
        assert_eq!(group.scatter_object(list, src).unwrap(), report(group.rank() + 1));
    }
    group.scatter_object((group.rank() == 1).then_some(&[(); 3][..]), 1).unwrap();
}

#[run_by(on_ranks(3))]
fn a_list_of_the_wrong_length_is_refused_on_all_ranks(group: &ProcessGroup) {
    let reports = [1, 2].map(report);
    let is_source = group.rank() == 1;
    for (list, found) in
        [(Some(&reports[..]), "a list of 2, but must be"), (None, "None on rank src")]
    {
        let list = list.filter(|_| is_source);
        let expected = match is_source {
            true => format!("objects is {found}"),
            false => "the object of rank 1 is one that cannot be exchanged".into(),
        };
        expect_error_start(group.scatter_object(list, 1), &expected);
    }
    // The group goes on.
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn a_value_that_cannot_be_read_back_is_refused_on_all_ranks(group: &ProcessGroup) {
    use serde_json::{Value, json};

    // Rank 1's value alone could be read back.
    let value = (group.rank() == 0).then(|| json!({ "loss": 0.5 }));
    let list = (group.rank() == 0).then(|| vec![value.clone(), None]);
    let refused = [
        group.all_gather_object(&value).map(|_| ()),
        group.gather_object(&value, 1).map(|_| ()),
        group.broadcast_object(&mut value.clone(), 0),
        group.scatter_object(list.as_deref(), 0).map(|_| ()),
    ];
    let expected = match group.rank() {
        0 => "the object is of type core::option::Option<serde_json::value::Value>, which cannot",
        _ => "the object of rank 0 is one that cannot be exchanged, but must be one that can",
    };
    for result in refused {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(group.rank() == 1 || error.contains("serde_json::to_string"), "{error}");
    }
    // As text it can be exchanged, and the group goes on.
    let texts = group.all_gather_object(&serde_json::to_string(&value).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&texts[0]).unwrap(), json!({ "loss": 0.5 }));
}

#[run_by(on_ranks(3))]
fn a_value_is_sent_to_one_rank(group: &ProcessGroup) {
    match group.rank() {
        0 => {
            group.send_object(&report(2), 2).unwrap();
            group.send_object(&(), 2).unwrap();
            let unreadable = group.send_object(&serde_json::json!({ "a": 1 }), 2);
            expect_error(unreadable, "the object is of type");
        }
        2 => {
            assert_eq!(group.recv_object::<Report>(0).unwrap(), report(2));
            group.recv_object::<()>(0).unwrap();
            expect_error(group.recv_object::<()>(0), "the object of rank 0 is one that cannot be");
        }
        _ => expect_error(group.recv_object::<()>(1), "src is rank 1, this rank itself"),
    }
    group.barrier().unwrap();
}
