//! A rank dies at every step of the exchange through shared memory, and the others name it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use c10d_sys::{Call, Error, ErrorKind, GlooAddress, GlooOptions, ProcessGroup, ReduceOp};
use c10d_sys::{Store, TcpStoreOptions, probe_shared_memory};
use std::sync::{Mutex, atomic::AtomicI64, atomic::Ordering};
use std::{collections::BTreeMap, env, thread, time::Duration, time::Instant};
use std::{net::Ipv4Addr, net::TcpListener, os::unix::process::ExitStatusExt};
use tch::{Device, Kind, Tensor};
use tests::{Job, fork_server::serve_if_asked, fork_server::this_test, run_by};

const RANKS: usize = 3;
/// The rank that dies. It is neither the first nor the last.
const MORTAL: usize = 1;
/// So long that whoever waits for it has missed the death.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The first step at which all ranks have mapped each other's files.
const FIRST_OPERATION: i64 = 2;

const PORT: &str = "C10D_TEST_PORT";
const STEP: &str = "C10D_TEST_STEP";

/// Joins the others at a port, and exchanges in every way there is.
fn take_part(rank: usize, port: u16, listener: Option<TcpListener>) -> Result<(), Error> {
    let (server, timeout) = ((Ipv4Addr::LOCALHOST, port).into(), TIMEOUT);
    let options = TcpStoreOptions { server, world_size: RANKS, listener, timeout };
    let store = Store::tcp(options).unwrap();
    let address = GlooAddress::Host("127.0.0.1".into());
    let options =
        GlooOptions { address, shared_memory: true, name: rank, timeout, join_timeout: timeout };
    exchange(&ProcessGroup::gloo(&store, rank, RANKS, &options)?, rank)
}

fn exchange(group: &ProcessGroup, rank: usize) -> Result<(), Error> {
    let float = (Kind::Float, Device::Cpu);
    let allocated = group.allocate_tensor(&[100_000], float)?;
    let _ = allocated.shallow_clone().fill_(1.0);
    // Of one round, of several through staging buffers, and in place.
    for tensor in [Tensor::ones([10], float), Tensor::ones([200_000], float), allocated] {
        group.all_reduce(&tensor, ReduceOp::Sum, Call::default())?.wait(None)?;
        assert_eq!(f64::try_from(tensor.mean(Kind::Double)).unwrap(), RANKS as f64);
        for root in [MORTAL, 0] {
            group.broadcast(&tensor, root, Call::default())?.wait(None)?;
        }
        let len = tensor.size1().unwrap();
        let all = Tensor::zeros([RANKS as i64 * len], float);
        group.all_gather_into_tensor(&all, &tensor, Call::default())?.wait(None)?;
        assert_eq!(f64::try_from(all.mean(Kind::Double)).unwrap(), RANKS as f64);
        let outputs = if rank == MORTAL { all.chunk(RANKS as i64, 0) } else { Vec::new() };
        group.gather(&outputs, &tensor, MORTAL, Call::default())?.wait(None)?;
        let (part, whole) = (len / RANKS as i64, len / RANKS as i64 * RANKS as i64);
        let (part, whole) = (Tensor::zeros([part], float), tensor.narrow(0, 0, whole));
        group.reduce_scatter_tensor(&part, &whole, ReduceOp::Sum, Call::default())?.wait(None)?;
        assert_eq!(f64::try_from(part.mean(Kind::Double)).unwrap(), (RANKS * RANKS) as f64);
    }
    let whole = Tensor::ones([150_000], float);
    group.reduce(&whole, MORTAL, ReduceOp::Sum, Call::default())?.wait(None)?;
    let inputs = if rank == 0 { whole.chunk(RANKS as i64, 0) } else { Vec::new() };
    group.scatter(&Tensor::zeros([50_000], float), &inputs, 0, Call::default())?.wait(None)?;
    group.all_to_all_single(&whole.copy(), &whole, &[], &[], Call::default())?.wait(None)?;
    let parts = [1, 150_000].map(|len| Tensor::ones([RANKS as i64, len], float));
    let inputs = [1, 150_000].map(|len| Tensor::ones([len], float));
    group.all_gather_parts(&parts, &inputs, Call::default())?.wait(None)?;
    let sum = Tensor::zeros([150_001], float);
    group.reduce_scatter_parts(&sum, &parts, ReduceOp::Sum, Call::default())?.wait(None)?;
    assert_eq!(f64::try_from(sum.mean(Kind::Double)).unwrap(), RANKS as f64);
    group.barrier(Call::default())?.wait(None)
}

/// How many more steps this process takes before it kills itself.
static STEPS: AtomicI64 = AtomicI64::new(0);

extern "C" fn die_at_the_last_step() {
    if STEPS.fetch_sub(1, Ordering::Relaxed) == 0 {
        // SAFETY: a signal to this process itself touches no memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

/// What each of the others says when one dies at this step, and how long after the death; `None` if it does not die.
fn say(job: &Job, step: i64) -> Option<Vec<(Option<Error>, Duration)>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut mortal = this_test("a_rank_that_dies_at_any_step_is_named_by_the_others").unwrap();
    mortal.envs([(PORT, port.to_string()), (STEP, step.to_string())]);
    let mut mortal = job.start(mortal).unwrap();
    let mut listener = Some(listener);
    let start = |rank| {
        let listener = listener.take();
        thread::spawn(move || (take_part(rank, port, listener), Instant::now()))
    };
    let others: Vec<_> = (0..RANKS).filter(|rank| *rank != MORTAL).map(start).collect();
    let status = mortal.wait().unwrap().status;
    let survived = status.success();
    assert!(survived || status.signal() == Some(libc::SIGKILL), "step {step}: {status}");
    let death = Instant::now();
    let witnesses = others.into_iter().map(|other| {
        let (outcome, end) = other.join().unwrap();
        (outcome.err(), end.saturating_duration_since(death))
    });
    (!survived).then_some(witnesses.collect())
}

#[run_by(at_every_step(-20))]
fn a_rank_that_dies_at_any_step_is_named_by_the_others() {
    let variable = |name| env::var(name).unwrap();
    STEPS.store(variable(STEP).parse().unwrap(), Ordering::Relaxed);
    probe_shared_memory(die_at_the_last_step);
    take_part(MORTAL, variable(PORT).parse().unwrap(), None).unwrap();
}

/// Runs the test's body in a rank that dies at its first step (0 or less), its second and so on, until one survives.
fn at_every_step(first: i64, body: impl Fn()) {
    if env::var_os(PORT).is_some() {
        return body();
    }
    serve_if_asked().unwrap();
    // Each trial sleeps most of the time.
    let (next, errors) = (AtomicI64::new(first), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let job = Job::new().unwrap();
                loop {
                    // Which error gloo gives while it connects depends on who is faster, so the first step is tried often.
                    let step = next.fetch_add(1, Ordering::Relaxed).max(0);
                    let Some(witnesses) = say(&job, step) else { break };
                    for (error, delay) in &witnesses {
                        // Far more than it takes, and far less than the timeout.
                        assert!(*delay < Duration::from_secs(20), "step {step}: {delay:?}");
                        let Some(error) = error else { continue };
                        assert_eq!(error.kind(), ErrorKind::Connection, "step {step}: {error}");
                        // Until the others have mapped its file, it is gloo that notices, and gloo names nobody.
                        let named = error.message().contains("rank 1");
                        assert!(named || step < FIRST_OPERATION, "step {step}: {error}");
                    }
                    let count = witnesses.iter().filter(|(error, _)| error.is_some()).count();
                    let mut errors = errors.lock().unwrap();
                    let least = errors.entry(step).or_insert(count);
                    *least = count.min(*least);
                }
            });
        }
    });
    let errors = errors.into_inner().unwrap();
    let last = *errors.keys().max().unwrap();
    assert!(last > 30, "there are only {last} steps");
    // In the last steps, of the barrier, the others need nothing more of it.
    let unnoticed: Vec<_> =
        errors.iter().filter(|(step, count)| **count < RANKS - 1 && **step < last - 3).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
