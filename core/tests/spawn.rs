//! Ranks that a program starts itself. Here they run this test program, so it has no other test.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use std::{env, fs, process, thread, time::Duration};
use tch_parallel::distributed::spawn;

/// Rank 0 ends because of rank 1, and before it.
fn fail(rank: usize) -> Result<(), &'static str> {
    if rank == 0 {
        let report = r#"{"message": {"message": "lost", "extraInfo": {"culprit": null}}}"#;
        fs::write(env::var("TORCHELASTIC_ERROR_FILE").unwrap(), report).unwrap();
        process::exit(1);
    }
    thread::sleep(Duration::from_millis(50));
    Err("no data")
}

#[test]
fn each_of_several_calls_starts_ranks_for_its_own_worker() {
    for failing in 0..2 {
        let worker = |rank| if rank == failing { Err(format!("no GPU {rank}")) } else { Ok(()) };
        let error = spawn(2, worker).unwrap_err().to_string();
        assert_eq!(error, format!("rank {failing} failed (exit status: 1): no GPU {failing}"));
    }
    spawn(2, |_| Ok::<_, String>(())).unwrap();
    let error = spawn(2, fail).unwrap_err().to_string();
    assert_eq!(error, "rank 1 failed (exit status: 1): no data");
    let error = spawn(1, |_| spawn(1, |_| Ok::<_, String>(()))).unwrap_err().to_string();
    assert!(error.contains("a rank cannot start ranks of its own"), "{error}");
}
