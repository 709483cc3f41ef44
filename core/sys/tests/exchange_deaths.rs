//! A rank dies at every step of the exchange through shared memory, and the others name it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use std::{env, thread};

use c10d_sys::{Error, ErrorKind, GlooAddress, GlooOptions, ProcessGroup, ReduceOp};
use c10d_sys::{Store, TcpStoreOptions, probe_shared_memory};
use tch::{Device, Kind, Tensor};

const RANKS: usize = 3;
/// The rank that dies. It is neither the first nor the last.
const MORTAL: usize = 1;
/// So long that whoever waits for it has missed the death.
const TIMEOUT: Duration = Duration::from_secs(600);

const PORT: &str = "C10D_TEST_PORT";
const STEP: &str = "C10D_TEST_STEP";

/// Joins the others at a port, and exchanges in every way there is.
fn take_part(rank: usize, port: u16, listener: Option<TcpListener>) -> Result<(), Error> {
    let (host, world_size, timeout) = ("127.0.0.1", RANKS, TIMEOUT);
    let store = Store::tcp(TcpStoreOptions { host, port, world_size, listener, timeout })?;
    let address = GlooAddress::Host(host.into());
    let options = GlooOptions { address, shared_memory: true, name: rank, timeout };
    let group = ProcessGroup::gloo(&store, rank, RANKS, &options)?;
    assert_eq!(group.no_shared_memory(), None);

    let ones = |len| Tensor::ones([len], (Kind::Float, Device::Cpu));
    let allocated = group.allocate_tensor(&[100_000], Kind::Float)?;
    let _ = allocated.shallow_clone().fill_(1.0);
    // Of one round, of several through staging buffers, and in place.
    for tensor in [ones(10), ones(200_000), allocated] {
        group.all_reduce(&tensor, ReduceOp::Sum)?.wait()?;
        assert_eq!(f64::try_from(tensor.mean(Kind::Double)).unwrap(), RANKS as f64);
        for root in [MORTAL, 0] {
            group.broadcast(&tensor, root)?.wait()?;
        }
    }
    group.barrier()?.wait()
}

/// How many more steps this process takes before it kills itself.
static STEPS: AtomicI64 = AtomicI64::new(0);

extern "C" fn die_at_the_last_step() {
    if STEPS.fetch_sub(1, Ordering::Relaxed) == 0 {
        // SAFETY: a signal to this process itself touches no memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

/// Starts the rank that dies at a step: this test's executable, which calls `take_part` there.
fn start_mortal(test: &str, port: u16, step: i64) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .envs([(PORT, port.to_string()), (STEP, step.to_string())])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// What the other ranks say when one dies at this step, or `None` if it has come to its end.
fn say(test: &str, step: i64) -> Option<Vec<Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut mortal = start_mortal(test, port, step);
    let mut listener = Some(listener);
    let others: Vec<_> = (0..RANKS)
        .filter(|rank| *rank != MORTAL)
        .map(|rank| {
            let listener = listener.take();
            thread::spawn(move || take_part(rank, port, listener))
        })
        .collect();
    let said: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
    let survived = mortal.wait().unwrap().success();
    (!survived).then(|| said.into_iter().filter_map(Result::err).collect())
}

#[test]
fn a_rank_that_dies_at_any_step_is_named_by_the_others() {
    let test = "a_rank_that_dies_at_any_step_is_named_by_the_others";
    if let Ok(port) = env::var(PORT) {
        STEPS.store(env::var(STEP).unwrap().parse().unwrap(), Ordering::Relaxed);
        probe_shared_memory(die_at_the_last_step);
        take_part(MORTAL, port.parse().unwrap(), None).unwrap();
        return;
    }
    // Each trial sleeps most of the time.
    let next = AtomicI64::new(0);
    let named_by = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let step = next.fetch_add(1, Ordering::Relaxed);
                    let Some(errors) = say(test, step) else { break };
                    for error in &errors {
                        assert_eq!(error.kind(), ErrorKind::Connection, "step {step}: {error}");
                        assert!(error.message().contains("rank 1"), "step {step}: {error}");
                    }
                    named_by.lock().unwrap().insert(step, errors.len());
                }
            });
        }
    });
    let named_by = named_by.into_inner().unwrap();
    let last = *named_by.keys().max().unwrap();
    assert!(last > 30, "there are only {last} steps");
    // In the last steps, of the barrier, the others need nothing more of it.
    let unnoticed: Vec<_> =
        named_by.iter().filter(|(step, named)| **named < RANKS - 1 && **step < last - 3).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}
