//! Exchanges of values that are not tensors.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

use serde::{Deserialize, Serialize};
use tch_parallel::distributed::ProcessGroup;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Report {
    host: String,
    losses: Vec<f64>,
}

/// The ranks' reports differ in size, and each holds a number that is not finite.
fn report(rank: usize) -> Report {
    let losses = (0..rank).map(|step| 1.0 / (step + 1) as f64);
    Report { host: "n".repeat(1 + 100 * rank), losses: losses.chain([f64::INFINITY]).collect() }
}

on_ranks!(
    3,
    fn values_of_any_size_are_gathered_in_the_order_of_ranks(group: &ProcessGroup) {
        let gathered = group.all_gather_object(&report(group.rank())).unwrap();
        assert_eq!(gathered, [0, 1, 2].map(report));
        assert_eq!(group.all_gather_object(&()).unwrap(), [(); 3]);
    }
);

on_ranks!(
    3,
    fn a_value_is_copied_from_its_source(group: &ProcessGroup) {
        for src in 0..3 {
            let mut value = report(group.rank());
            group.broadcast_object(&mut value, src).unwrap();
            assert_eq!(value, report(src));
        }
        group.broadcast_object(&mut (), 1).unwrap();
        let error = group.broadcast_object(&mut 0, 3).unwrap_err().to_string();
        assert!(error.contains("src is rank 3"), "{error}");
    }
);

on_ranks!(
    2,
    fn a_value_of_another_type_is_an_error(group: &ProcessGroup) {
        let other_type = match group.rank() {
            0 => group.all_gather_object(&"text".to_owned()).map(|_| ()),
            _ => group.all_gather_object(&u64::MAX).map(|_| ()),
        };
        let error = other_type.unwrap_err().to_string();
        assert!(error.contains("all_gather_object failed: "), "{error}");
    }
);
