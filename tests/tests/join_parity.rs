//! Training with uneven inputs equals PyTorch's to the last bit: every loss of every rank, and the
//! final weights of all ranks.

use crate::prelude::*;

const BY_THOSE_THAT_TRAIN: &str = r#"{"divide_by_initial_world_size": false}"#;

fn expect_parity(world_size: usize, arguments: &[&str]) -> Result<Vec<BTreeMap<String, Tensor>>> {
    let program = example("uneven_inputs", arguments.iter().copied())?;
    let rust = Job::done(launch(world_size, &program)?)?.tensors_by_rank(world_size)?;
    let job = Job::new()?;
    let programs = (0..world_size).map(|_| python("uneven_inputs", arguments.iter().copied()));
    expect_all_succeed(start_by_hand(&job, programs)?)?;
    let python = job.tensors_by_rank(world_size)?;

    for rank in 0..world_size {
        let names = [&rust, &python].map(|all| all[rank].keys().cloned().collect::<Vec<_>>());
        ensure!(names[0] == names[1] && names[0].len() == 6, "saved were {names:?}");
        let steps = rust[rank]["losses"].shape[0];
        ensure!(steps == 4 + 3 * rank, "rank {rank} made {steps} steps");
        for (name, tensor) in &rust[rank] {
            ensure!(tensor == &python[rank][name], "{name} of rank {rank} differs from Python's");
            ensure!(
                name == "losses" || tensor == &rust[0][name],
                "{name} of rank {rank} differs from that of rank 0"
            );
        }
    }
    Ok(rust)
}

#[test]
fn two_ranks_equal_python_whichever_way_gradients_are_divided() -> Result<()> {
    let all = expect_parity(2, &["{}", "."])?;
    ensure!(all != expect_parity(2, &[BY_THOSE_THAT_TRAIN, "."])?, "the way makes no difference");
    Ok(())
}

#[test]
fn three_ranks_that_leave_one_after_the_other_equal_python() -> Result<()> {
    expect_parity(3, &[BY_THOSE_THAT_TRAIN, "."]).map(drop)
}

#[test]
fn with_a_sharded_optimizer_and_a_joinable_of_ones_own_ranks_equal_python() -> Result<()> {
    for (world_size, steps) in [(2, 4 + 7), (3, 4 + 7 + 10)] {
        let samples = &expect_parity(world_size, &["{}", ".", "sharded"])?[0]["samples"];
        ensure!(samples.bytes == i64::to_le_bytes(64 * steps), "{samples:?}");
    }
    Ok(())
}
