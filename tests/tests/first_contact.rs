//! What a user sees who builds before the set-up.

use anyhow::Result;
use tests::Job;
use tests::programs::cargo;

#[test]
fn a_build_without_libtorch_says_how_to_set_it_up() -> Result<()> {
    let job = Job::new()?;
    let mut cargo = cargo();
    cargo
        .args(["build", "--offline", "-p", "find-libtorch"])
        .env("LIBTORCH", job.directory())
        .env("CARGO_TARGET_DIR", job.directory());
    job.run(cargo)?
        .expect_code(101)?
        .expect_line(&["error:", "libtorch is not set up: run `cargo xtask setup`"])?;
    Ok(())
}
