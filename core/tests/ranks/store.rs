//! Groups of some of a job's processes, and the store through which they meet.

use crate::{common::TIMEOUT, new_group::sum, prelude::*};
use tests::programs::free_port;

/// The group of rank 0 and rank `with`; this process is one of the two.
fn pair(store: &Store, with: usize, rank: usize) -> ProcessGroup {
    let store = store.with_prefix(&format!("pair/{with}")).unwrap();
    ProcessGroup::with_store(&store, rank, 2, common::options()).unwrap()
}

fn send(group: &ProcessGroup, number: f32) {
    group.send(&Tensor::from_slice(&[number]), 1 - group.rank()).unwrap();
}

fn recv(group: &ProcessGroup) -> Result<f32, Error> {
    let mut tensor = Tensor::from_slice(&[0f32]);
    group.recv(&mut tensor, 1 - group.rank())?;
    Ok(f32::try_from(&tensor).unwrap())
}

#[run_by(common::with_store(3))]
fn what_one_process_sets_the_others_get(store: Store, rank: usize) {
    let ours = store.with_prefix("test").unwrap();
    if rank == 1 {
        assert!(!ours.check("message").unwrap());
        ours.set("message", b"hello").unwrap();
    }
    assert_eq!(ours.get("message", TIMEOUT).unwrap(), b"hello");
    assert_eq!(store.get("test/message", TIMEOUT).unwrap(), b"hello");
    if rank > 0 {
        return store.set(&format!("read by {rank}"), b"").unwrap();
    }
    // Rank 0 serves the store, so it stays until the others have read.
    store.wait(&["read by 1", "read by 2"], TIMEOUT).unwrap();
}

#[run_by(common::with_store(2))]
fn a_thread_with_a_connection_of_its_own_holds_nobody_up(store: Store, rank: usize) {
    const STEPS: i64 = 1000;
    if rank == 1 {
        while store.add("steps", 0).unwrap() < STEPS {
            std::thread::yield_now();
        }
        return store.set("all steps", b"seen").unwrap();
    }
    std::thread::scope(|scope| {
        let own = store.try_clone().unwrap();
        let waiting = scope.spawn(move || own.get("all steps", TIMEOUT));
        // Takes so long that the thread is waiting before the last step.
        (0..STEPS).for_each(|_| assert!(store.add("steps", 1).unwrap() <= STEPS));
        assert_eq!(waiting.join().unwrap().unwrap(), b"seen");
    });
}

#[run_by(common::with_store(3))]
fn two_of_three_make_a_group_without_the_third(store: Store, rank: usize) {
    if rank == 2 {
        // The third comes only when the others have finished.
        store.get("done", TIMEOUT).unwrap();
        return store.set("seen", b"").unwrap();
    }
    let group = pair(&store, 1, rank);
    assert_eq!(sum(&group, rank + 1), 3.0);
    if rank == 0 {
        store.set("done", b"").unwrap();
        store.get("seen", TIMEOUT).unwrap();
    }
}

#[run_by(common::with_store(3))]
fn a_member_that_ends_breaks_only_its_group_and_is_named_as_in_the_job(store: Store, rank: usize) {
    if rank == 2 {
        let group = pair(&store, 2, 1);
        // After this, rank 0 is connected too.
        recv(&group).unwrap();
        // Exits without closing the group, as if it had been killed.
        tch_parallel::exit(0);
    }
    if rank == 1 {
        let group = pair(&store, 1, 1);
        return send(&group, recv(&group).unwrap() + 1.0);
    }
    let groups = [1, 2].map(|with| pair(&store, with, 0));
    send(&groups[1], 0.0);
    let error = recv(&groups[1]).unwrap_err().to_string();
    assert!(error.starts_with("rank 0: recv failed: "), "{error}");
    assert!(error.contains("(rank 2 (pid ") && error.ends_with(") has ended)"), "{error}");
    send(&groups[0], 1.0);
    assert_eq!(recv(&groups[0]).unwrap(), 2.0);
}

#[run_by(on_ranks(2))]
fn a_process_joins_its_job_once(group: &ProcessGroup) {
    let expected = "this process has already joined it";
    expect_error(ProcessGroup::from_env(), expected);
    expect_error(Store::from_env(TIMEOUT), expected);
    group.barrier().unwrap();
}

#[test]
fn a_member_that_does_not_come_is_missed_and_one_beyond_the_group_is_refused() {
    let store = Store::from_env(TIMEOUT).unwrap();
    let timeout = Some(Duration::from_millis(300));
    let options = ProcessGroupOptions { timeout, ..common::options() };
    let error = message(ProcessGroup::with_store(&store, 0, 2, options));
    assert!(error.ends_with("rank 1 did not arrive within 300ms"), "{error}");
    let error = message(ProcessGroup::with_store(&store, 2, 2, common::options()));
    assert_eq!(error, "rank is 2, but must be below world_size, which is 2");
}

#[run_by(common::with_store(3))]
fn of_several_processes_one_sets_a_key(store: Store, rank: usize) {
    let own = rank.to_string().into_bytes();
    let winner = store.compare_set("winner", b"", &own).unwrap();
    // Whoever came first has won for all.
    store.set(&format!("winner for {rank}"), &winner).unwrap();
    let keys = [0, 1, 2].map(|rank| format!("winner for {rank}"));
    store.wait(&keys, TIMEOUT).unwrap();
    keys.iter().for_each(|key| assert_eq!(store.get(key, TIMEOUT).unwrap(), winner));
    // An expectation that does not hold changes nothing.
    assert_eq!(store.compare_set("winner", b"nobody", &own).unwrap(), winner);
    store.add("read", 1).unwrap();
    // Rank 0 serves the store, so it stays until the others have read.
    while rank == 0 && store.add("read", 0).unwrap() < 3 {
        std::thread::yield_now();
    }
}

#[run_by(common::with_store(2))]
fn keys_can_be_counted_and_deleted(store: Store, rank: usize) {
    if rank == 1 {
        return store.set("done", b"").unwrap();
    }
    store.wait(&["done"], TIMEOUT).unwrap();
    let before = store.num_keys().unwrap();
    store.set("a", b"1").unwrap();
    store.set("b", b"2").unwrap();
    assert_eq!(store.num_keys().unwrap(), before + 2);
    assert!(store.delete_key("a").unwrap());
    assert!(!store.delete_key("a").unwrap());
    assert!(!store.check("a").unwrap());
    assert_eq!(store.num_keys().unwrap(), before + 1);
    // The server would close the connection.
    let [most, more] = [8 << 20, (8 << 20) + 1].map(|bytes| vec![7; bytes]);
    expect_error(store.set("large", &more), "expected at most 8 MiB");
    store.set("large", &most).unwrap();
    assert!(store.get("large", TIMEOUT).unwrap() == most);
}

#[test]
fn keys_that_nobody_sets_are_named_after_the_timeout() {
    let store = Store::from_env(TIMEOUT).unwrap().with_prefix("test").unwrap();
    let soon = Duration::from_millis(100);
    expect_error(store.get("nothing", soon), "could not get test/nothing in the store");
    store.set("here", b"").unwrap();
    let error = message(store.wait(&["here", "absent"], soon));
    let expected = "could not wait for test/absent in the store: timed out after 100ms";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn every_kind_of_store_sets_and_gets_several_keys_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [
        Store::hash().unwrap(),
        Store::file(directory.path().join("store"), None).unwrap(),
        Store::tcp("127.0.0.1", free_port().unwrap(), true, TIMEOUT).unwrap(),
    ];
    assert_eq!(stores[2].num_keys().unwrap(), 1, "as in PyTorch");
    for store in stores {
        let store = store.with_prefix("test").unwrap();
        store.multi_set(&[("a", "1"), ("empty", ""), ("b", "23")]).unwrap();
        store.append("a", b"x").unwrap();
        // The same as what is there.
        store.append("b", b"23").unwrap();
        let values = store.multi_get(&["b", "empty", "a"], TIMEOUT).unwrap();
        assert_eq!(values, [&b"2323"[..], b"", b"1x"]);
        let error = message(store.multi_get(&["a", "absent"], Duration::from_millis(100)));
        let expected = "could not get test/absent in the store: timed out after 100ms";
        assert!(error.ends_with(expected), "{error}");
        assert_eq!(["a", "a"].map(|key| store.delete_key(key).unwrap()), [true, false]);
    }
}

#[test]
fn every_value_of_a_queue_is_taken_once() {
    let tcp = Store::tcp("127.0.0.1", free_port().unwrap(), true, TIMEOUT);
    for store in [Store::hash(), tcp].map(Result::unwrap) {
        let store = store.with_prefix("test").unwrap();
        let empty = store.queue_pop("q", Duration::ZERO);
        expect_error(empty, "could not take from test/q in the store");
        expect_error(store.queue_pop("q", Duration::from_millis(100)), "timed out after 100ms");
        let take = |_| {
            let own = store.try_clone().unwrap();
            std::thread::spawn(move || own.queue_pop("q", TIMEOUT).unwrap())
        };
        let takers: Vec<_> = (0..3).map(take).collect();
        for value in [b"1", b"2", b"3", b"4"] {
            store.queue_push("q", value).unwrap();
        }
        let mut taken: Vec<_> = takers.into_iter().map(|it| it.join().unwrap()).collect();
        taken.push(store.queue_pop("q", Duration::ZERO).unwrap());
        taken.sort();
        assert_eq!((taken.concat(), store.queue_len("q").unwrap()), (b"1234".to_vec(), 0));
        [b"5", b"6"].into_iter().for_each(|value| store.queue_push("q", value).unwrap());
        assert_eq!(store.queue_len("q").unwrap(), 2);
        let both = [(); 2].map(|()| store.queue_pop("q", TIMEOUT).unwrap());
        assert_eq!(both, [b"5", b"6"]);
    }
}

#[test]
fn a_counter_wakes_the_thread_that_waits_for_it() {
    let store = Store::hash().unwrap().with_prefix("test").unwrap();
    let own = store.try_clone().unwrap();
    let begin = Instant::now();
    let waiting = std::thread::spawn(move || own.get("n", TIMEOUT).unwrap());
    // Until it probably waits; if it does not yet, it has nothing to wait for.
    std::thread::sleep(Duration::from_millis(100));
    store.add("n", 1).unwrap();
    assert_eq!(waiting.join().unwrap(), b"1");
    assert!(begin.elapsed() < TIMEOUT / 2, "{:?}", begin.elapsed());
}

#[run_by(common::processes(2))]
fn processes_meet_at_a_host_and_a_port_without_a_job() {
    let Env { rank, master_port, .. } = Env::read().unwrap().unwrap();
    let store = Store::tcp("localhost", master_port, rank == 0, TIMEOUT).unwrap();
    ProcessGroup::with_store(&store, rank, 2, common::options()).unwrap().barrier().unwrap();
}

/// The ranks of a job that meets at this address share memory, and name the one that has ended.
fn expect_a_whole_job(init_method: &str) {
    // The call says which rank this is, and not the environment.
    let rank = 1 - Env::read().unwrap().unwrap().rank;
    let group = ProcessGroup::with_init_method(init_method, rank, 2, common::options()).unwrap();
    assert_eq!((group.rank(), group.transport()), (rank, Transport::SharedMemory));
    assert_eq!(sum(&group, rank + 1), 3.0);
    if rank == 1 {
        // Without closing the group, as if it had been killed.
        tch_parallel::exit(0);
    }
    let error = recv(&group).unwrap_err().to_string();
    assert!(error.contains("(rank 1 (pid ") && error.ends_with(") has ended)"), "{error}");
}

#[run_by(common::processes_with(2, common::with_variable("MASTER_ADDR", "nowhere.invalid")))]
fn ranks_meet_at_the_address_of_a_call() {
    expect_a_whole_job(&format!("tcp://127.0.0.1:{}", std::env::var("MASTER_PORT").unwrap()));
}

#[run_by(common::processes(2))]
fn ranks_meet_at_the_address_of_the_environment() {
    expect_a_whole_job("env://");
}

#[run_by(common::processes(2))]
fn ranks_meet_in_a_file() {
    let directory = std::env::current_dir().unwrap();
    expect_a_whole_job(&format!("file://{}/rendezvous", directory.display()));
}

#[test]
fn a_store_that_is_nowhere_and_an_address_of_another_form_are_errors() {
    let port = free_port().unwrap();
    let store = Store::tcp("127.0.0.1", port, false, Duration::from_millis(100));
    expect_error(store, &format!("could not reach a store at 127.0.0.1:{port}"));
    expect_error(Store::file("/nowhere/store", None), "cannot open /nowhere/store");
    for address in ["127.0.0.1:1", "tcp://host", "tcp://host:0", "file://", "http://host:1"] {
        let group = ProcessGroup::with_init_method(address, 0, 1, common::options());
        expect_error(group, "but must be tcp://HOST:PORT, file:///PATH or env://");
    }
}
