//! Every check accepts a solution, and refuses the hole and a wrong answer. A rank of `spawn` is this program again, so
//! it has one test only.

mod right;
mod wrong;

use anyhow::{bail, ensure};
use exercises::{Check, checks, prelude::*};
use std::{fs, panic::AssertUnwindSafe, panic::catch_unwind};

#[test]
fn each_check_accepts_the_solution_and_refuses_the_hole_and_a_wrong_answer() -> Result<()> {
    Ok(spawn(2, |_| as_a_rank())?)
}

fn as_a_rank() -> Result<()> {
    tch::set_num_threads(1);
    // Holes panic.
    std::panic::set_hook(Box::new(|_| {}));
    let group = init_process_group(options())?;
    let outcome = |check: Check| catch_unwind(AssertUnwindSafe(|| check(&group)));
    let cases = checks!(right).into_iter().zip(checks!(wrong)).zip(checks!(exercises));
    for (number, ((right, wrong), readers)) in (1..).zip(cases) {
        let found = outcome(right);
        ensure!(matches!(found, Ok(Ok(()))), "the solution of {number}: {found:?}");
        let found = outcome(wrong);
        let is_refused = matches!(&found, Ok(Err(it)) if it.to_string().contains("should be"));
        ensure!(is_refused, "the wrong answer to {number}: {found:?}");
        // A reader may have filled it.
        let found = outcome(readers);
        let is_refused = !matches!(found, Ok(Ok(())));
        ensure!(is_refused || !has_hole(number)?, "the hole of {number}: {found:?}");
    }
    Ok(())
}

fn has_hole(number: usize) -> Result<bool> {
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))? {
        let path = file?.path();
        if path.to_string_lossy().contains(&format!("/e{number:02}_")) {
            return Ok(fs::read_to_string(path)?.contains("todo!("));
        }
    }
    bail!("there is no file for exercise {number}")
}
