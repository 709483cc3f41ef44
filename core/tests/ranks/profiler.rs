//! The trace of a training shows the backward pass and the exchange of the gradients.

use crate::prelude::*;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
use tch_parallel::profiler::{Profiler, profile, record_function};

#[run_by(on_ranks(2))]
fn a_trace_shows_the_exchange_and_the_backward_pass(group: &ProcessGroup) {
    let layer = |path: &nn::Path<'_>| nn::linear(path, 64, 64, Default::default());
    let (_vs, model) = ddp(group, DdpOptions::default(), layer);
    let [path, again] = ["trace", "again"].map(|name| format!("{name}{}.json", group.rank()));
    let step = || {
        let inputs = Tensor::ones([8, 64], FLOAT_CPU);
        let loss = model.forward(|layer| layer.forward(&inputs)).unwrap().sum(Kind::Float);
        record_function("my backward pass", || model.backward(&loss)).unwrap().unwrap();
    };
    profile(&path, step).unwrap();
    let trace = fs::read_to_string(&path).unwrap();
    let events: serde_json::Value = serde_json::from_str(&trace).unwrap();
    let event = |name: &str| {
        let mut events = events["traceEvents"].as_array().unwrap().iter();
        let event = events.find(|event| event["name"] == name);
        let event = event.unwrap_or_else(|| panic!("{name} is missing"));
        let number = |field: &str| event[field].as_f64().unwrap();
        (number("ts"), number("ts") + number("dur"))
    };
    // Not "gloo:all_reduce", which ends when the work does: after those who wait for it go on.
    let (pass, exchange) = (event("my backward pass"), event("shared_memory:all_reduce"));
    assert!(pass.0 < exchange.0 && exchange.1 < pass.1, "{exchange:?} is not within {pass:?}");
    let (forward, layer) = (event("DistributedDataParallel.forward"), event("aten::addmm"));
    assert!(forward.0 <= layer.0 && layer.1 <= forward.1 && forward.1 <= pass.0);
    assert!(trace.contains("AddmmBackward0"), "the backward pass is missing");
    // What comes after is not recorded, and a second trace may be.
    step();
    profile(&again, || ()).unwrap();
    assert!(!fs::read_to_string(&again).unwrap().contains("AddmmBackward0"));
}

#[run_by(on_ranks(1))]
fn one_profiler_runs_at_a_time_and_only_a_stopped_one_replaces_a_trace(_group: &ProcessGroup) {
    let [first, second] = ["first.json", "second.json"];
    let earlier = "an earlier trace ".repeat(100_000);
    [first, second].iter().for_each(|path| fs::write(path, &earlier).unwrap());
    let running = Profiler::start(first).unwrap();
    let expected = "the profiler is running already, but must be stopped before another starts";
    assert_eq!(message(Profiler::start(second)), expected);
    drop(running);
    assert!([first, second].iter().all(|path| fs::read_to_string(path).unwrap() == earlier));
    expect_error_start(Profiler::start("no/such.json"), "cannot create");
    let error = message(Profiler::start(OsStr::from_bytes(b"trace\xff.json")));
    assert!(error.ends_with("must be UTF-8, as PyTorch requires"), "{error}");
    // What was refused does not count as running.
    Profiler::start(second).unwrap().stop().unwrap();
    let trace = fs::read_to_string(second).unwrap();
    assert!(trace.contains("traceEvents") && !trace.contains("earlier"));
}
