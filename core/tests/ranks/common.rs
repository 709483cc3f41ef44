//! Runs a test's body on several ranks, each in its own process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{any::type_name, collections::BTreeMap, process::Command, time::Duration};
use tch::{Device, Tensor, kind::FLOAT_CPU, kind::INT64_CPU, nn, nn::VarStore, no_grad};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
use tch_parallel::{checkpoint::Training, distributed::hooks::CommHook, distributed::*};
use tests::fork_server::{serve_if_asked, this_test};
use tests::programs::{as_rank, free_port, in_shell};
use tests::{Job, expect_all_succeed, python, run_by};

pub const TIMEOUT: Duration = Duration::from_secs(120);

/// The name of the test that contains this closure.
fn test_of<C>(_closure: &C) -> &'static str {
    let path = type_name::<C>().trim_end_matches("::{{closure}}");
    path.split_once("::").map_or(path, |(_program, test)| test)
}

/// In the test's process, starts the ranks and waits for them; in a rank's, runs the body, in the job's directory.
pub fn on_ranks(world_size: usize, body: impl Fn(&ProcessGroup)) {
    processes_from(world_size, test_of(&body), None, |_, it| it, || body(&join()));
}

/// Values of `TCH_PARALLEL_SHARED_MEMORY`.
pub const SHARED_MEMORY: &[&str] = &["1"];
pub const EACH_TRANSPORT: &[&str] = &["1", "0"];

/// Like `on_ranks`, once with shared memory and once without.
pub fn on_ranks_with_each_transport(world_size: usize, body: impl Fn(&ProcessGroup)) {
    for switch in EACH_TRANSPORT {
        let switched = with_variable("TCH_PARALLEL_SHARED_MEMORY", switch);
        processes_from(world_size, test_of(&body), None, switched, || body(&join()));
    }
}

/// Like `on_ranks`, but first runs as many ranks of a Python script. Each is called with a file's name and `arguments`.
/// The body gets the tensors that the script's rank of the same number has saved in its file.
pub fn after_python(
    (world_size, transports): (usize, &[&str]),
    script: &str,
    arguments: &str,
    body: impl Fn(&ProcessGroup, Saved),
) {
    let with_file = || {
        let group = join();
        body(&group, read(&saved_by(script, group.rank())));
    };
    for switch in transports {
        let switched = with_variable("TCH_PARALLEL_SHARED_MEMORY", switch);
        processes_from(world_size, test_of(&body), Some((script, arguments)), switched, with_file);
    }
}

pub fn join() -> ProcessGroup {
    init_process_group(options()).unwrap()
}

pub fn options() -> ProcessGroupOptions {
    ProcessGroupOptions { device: DeviceChoice::Cpu, timeout: Some(TIMEOUT), ..Default::default() }
}

/// Like `on_ranks`, but for processes that are not all in one group.
pub fn processes(world_size: usize, body: impl FnOnce()) {
    processes_with(world_size, |_, command| command, body);
}

/// Like `processes`, with the job's store and this process's rank.
pub fn with_store(world_size: usize, body: impl FnOnce(Store, usize)) {
    let test = test_of(&body);
    let body = || body(Store::from_env(TIMEOUT).unwrap(), Env::read().unwrap().unwrap().rank);
    processes_from(world_size, test, None, |_, it| it, body);
}

/// Like `processes_with`, but first runs as many ranks of a Python script.
pub fn processes_after_python(
    world_size: usize,
    script: &str,
    arguments: &str,
    change: impl Fn(usize, Command) -> Command,
    body: impl FnOnce(),
) {
    processes_from(world_size, test_of(&body), Some((script, arguments)), change, body);
}

/// Like `processes`, but `change` adapts the commands that start the ranks.
pub fn processes_with(
    world_size: usize,
    change: impl Fn(usize, Command) -> Command,
    body: impl FnOnce(),
) {
    processes_from(world_size, test_of(&body), None, change, body);
}

/// `before`: a Python script and its arguments, of which as many ranks run first.
fn processes_from(
    world_size: usize,
    test: &str,
    before: Option<(&str, &str)>,
    change: impl Fn(usize, Command) -> Command,
    body: impl FnOnce(),
) {
    if std::env::var_os("RANK").is_some() {
        tch::set_num_threads(1);
        body();
        tch_parallel::exit(0);
    }
    serve_if_asked().unwrap();
    let job = Job::new().unwrap();
    if let Some((script, arguments)) = before {
        let command = |rank, port| python_rank(script, (rank, world_size, port), arguments);
        run_ranks(&job, world_size, command);
    }
    let command = |rank, port| as_rank(this_test(test).unwrap(), rank, world_size, port);
    run_ranks(&job, world_size, |rank, port| change(rank, command(rank, port)));
}

/// Starts ranks that meet at a port, and waits for them.
fn run_ranks(job: &Job, ranks: usize, command: impl Fn(usize, u16) -> Command) {
    let port = free_port().unwrap();
    let start = |rank| job.start(command(rank, port)).unwrap();
    expect_all_succeed((0..ranks).map(start).collect()).unwrap();
}

fn with_variables_of(other: &Command, mut command: Command) -> Command {
    command.envs(other.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// Starts two ranks, one of which runs a Python script and the other the body.
pub fn beside_python(script: &str, python_rank: usize, body: impl FnOnce()) {
    processes_with(2, rank_by(python_rank, || python(script, []).unwrap()), body);
}

/// Whether it panics.
pub fn panics<R>(body: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(body)).is_err()
}

pub fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.flatten(0, -1)).unwrap()
}

/// Numbers between -1 and 1, which Python's tests make in the same way.
pub fn numbers(size: &[i64], offset: i64) -> Tensor {
    let count: i64 = size.iter().product();
    (Tensor::arange(count, FLOAT_CPU) * 0.37 + offset).sin().view(size)
}

/// A wrapped model, and the new store of its variables.
pub fn ddp<M>(
    group: &ProcessGroup,
    options: DdpOptions,
    build: impl FnOnce(&nn::Path<'_>) -> M,
) -> (VarStore, DistributedDataParallel<M>) {
    let vs = VarStore::new(Device::Cpu);
    let model = DistributedDataParallel::with_options(build(&vs.root()), &vs, group, options);
    (vs, model.unwrap())
}

/// The defaults with a communication hook.
pub fn hooked(hook: impl CommHook + 'static) -> DdpOptions {
    DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() }
}

/// What the outputs for four of Python's samples should be.
pub fn labels() -> Tensor {
    Tensor::arange(4, INT64_CPU).remainder(3)
}

/// The same weights as in Python: each parameter has numbers from the next offset on.
pub fn fill(vs: &VarStore, offset: i64) {
    for (mut parameter, offset) in vs.trainable_variables().into_iter().zip(offset..) {
        no_grad(|| parameter.copy_(&numbers(&parameter.size(), offset)));
    }
}

pub fn sgd(vs: &VarStore, lr: f64) -> Sgd {
    Sgd::new(vs, SgdOptions { lr, momentum: 0.9, ..Default::default() }).unwrap()
}

/// The parts of a training without a schedule and a scaler.
pub fn training<'a>(vs: &'a mut VarStore, optimizer: &'a mut dyn Optimizer) -> Training<'a> {
    Training { architecture: "net", vs, optimizer, scheduler: None, scaler: None }
}

/// A change of commands for `processes_with`: this rank's runs under another, which takes a command as last arguments.
pub fn rank_under(rank: usize, outer: &str) -> impl Fn(usize, Command) -> Command {
    let script = format!(r#"exec {outer} "$@""#);
    move |own, command| if own == rank { in_shell(&script, &command) } else { command }
}

/// This rank's runs as the child of a shell that succeeds, so that it may be killed without making the test fail.
pub fn mortal(rank: usize) -> impl Fn(usize, Command) -> Command {
    move |own, command| if own == rank { in_shell(r#""$@"; true"#, &command) } else { command }
}

/// A change by which this rank runs another program.
pub fn rank_by(rank: usize, program: impl Fn() -> Command) -> impl Fn(usize, Command) -> Command {
    move |own, command| if own == rank { with_variables_of(&command, program()) } else { command }
}

/// A change in which all ranks have this environment variable.
pub fn with_variable(name: &str, value: &str) -> impl Fn(usize, Command) -> Command {
    move |_, mut command| {
        command.env(name, value);
        command
    }
}

pub type Saved = BTreeMap<String, Tensor>;

/// Saves copies of tensors, with a prefix before their names.
pub fn save(saved: &mut Saved, prefix: &str, tensors: impl IntoIterator<Item = (String, Tensor)>) {
    saved.extend(tensors.into_iter().map(|(name, it)| (format!("{prefix}.{name}"), it.copy())));
}

/// The command of a rank of a Python script, whose first argument is the file that it writes.
pub fn python_rank(script: &str, (rank, ranks, port): (usize, usize, u16), args: &str) -> Command {
    let file = saved_by(script, rank);
    let args = [&*file].into_iter().chain(args.split_whitespace());
    as_rank(python(script, args).unwrap(), rank, ranks, port)
}

fn saved_by(script: &str, rank: usize) -> String {
    format!("{script}-{rank}.safetensors")
}

pub fn read(file: &str) -> Saved {
    Tensor::read_safetensors(file).unwrap().into_iter().collect()
}

/// Expects the same names, and the same bits.
pub fn expect_equal(saved: Saved, expected: Saved) {
    assert_eq!(saved.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let differ: Vec<_> =
        saved.iter().filter(|(name, tensor)| **tensor != expected[*name]).map(|it| it.0).collect();
    assert!(differ.is_empty(), "{} of {}: {differ:?}", differ.len(), saved.len());
}

#[run_by(on_ranks(1))]
fn a_rank_alone(group: &ProcessGroup) {
    group.barrier().unwrap();
}

#[test]
fn a_rank_that_cannot_begin_fails() {
    let mut command = this_test("common::a_rank_alone").unwrap();
    let ended = Job::new().unwrap().run(command.current_dir("/nowhere")).unwrap();
    ended.expect_code(1).unwrap().expect_messages(&["No such file"]).unwrap();
}
