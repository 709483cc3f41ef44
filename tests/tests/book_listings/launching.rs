//! Chapter "Set-up and launching".

use std::process::Command;

use anyhow::Result;

use super::listing::{EXACT, expect_listing};
use super::run_by_rank;

#[test]
fn launch_tells_each_rank_who_it_is() -> Result<()> {
    let script = "echo RANK=$RANK LOCAL_RANK=$LOCAL_RANK WORLD_SIZE=$WORLD_SIZE \
                  MASTER_ADDR=$MASTER_ADDR OMP_NUM_THREADS=$OMP_NUM_THREADS";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]);
    let shown = format!("$ cargo launch -n 2 --tee 1 -- sh -c '{script}'\n");
    expect_listing("environment.txt", &(shown + &run_by_rank(2, &shell)?), EXACT)
}
