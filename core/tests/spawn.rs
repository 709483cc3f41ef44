//! Ranks that a program starts itself. Here they run this test program, so it has no other test.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use tch_parallel::distributed::{ProcessGroup, spawn};

/// All but the last rank fail because of that one.
fn train(rank: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let group = ProcessGroup::from_env()?;
    if rank == 2 { Err("no data".into()) } else { Ok(group.barrier()?) }
}

#[test]
fn each_of_several_calls_starts_ranks_for_its_own_worker() {
    for failing in 0..2 {
        let worker = |rank| if rank == failing { Err(format!("no GPU {rank}")) } else { Ok(()) };
        let error = spawn(2, worker).unwrap_err().to_string();
        assert_eq!(error, format!("rank {failing} failed (exit status: 1): no GPU {failing}"));
    }
    spawn(2, |_| Ok::<_, String>(())).unwrap();
    let error = spawn(3, train).unwrap_err().to_string();
    assert_eq!(error, "rank 2 failed (exit status: 1): no data");
    let error = spawn(1, |_| spawn(1, |_| Ok::<_, String>(()))).unwrap_err().to_string();
    assert!(error.contains("a rank cannot start ranks of its own"), "{error}");
}
