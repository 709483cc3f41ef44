//! Training with uneven inputs equals PyTorch's to the last bit: every loss of every rank, and the
//! final weights of all ranks.

use crate::prelude::*;

const BY_THOSE_THAT_TRAIN: &str = r#"{"divide_by_initial_world_size": false}"#;

/// The results of a program, an example here and a script in Python, on all ranks.
fn expect_parity(
    world_size: usize,
    program: &str,
    arguments: &[&str],
) -> Result<Vec<BTreeMap<String, Tensor>>> {
    let arguments = || arguments.iter().copied().chain(["."]);
    let job = Job::new()?;
    job.run(launch(world_size, &example(program, arguments())?)?)?.expect_success()?;
    let rust = job.tensors_by_rank(world_size)?;
    drop(job);

    let job = Job::new()?;
    let programs = (0..world_size).map(|_| python(program, arguments()));
    expect_all_succeed(start_by_hand(&job, programs)?)?;
    let python = job.tensors_by_rank(world_size)?;

    for rank in 0..world_size {
        let names = [&rust, &python].map(|all| all[rank].keys().cloned().collect::<Vec<_>>());
        ensure!(names[0] == names[1] && names[0].len() > 4, "saved were {names:?}");
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
    let all = expect_parity(2, "uneven_inputs", &["{}"])?;
    let those_that_train = expect_parity(2, "uneven_inputs", &[BY_THOSE_THAT_TRAIN])?;
    ensure!(all != those_that_train, "the way makes no difference");
    Ok(())
}

#[test]
fn three_ranks_that_leave_one_after_the_other_equal_python() -> Result<()> {
    expect_parity(3, "uneven_inputs", &[BY_THOSE_THAT_TRAIN]).map(drop)
}

#[test]
fn a_sharded_optimizer_and_a_joinable_of_ones_own_equal_python() -> Result<()> {
    for (world_size, samples, steps) in [(2, 64 * (4 + 7), 7), (3, 64 * (4 + 7 + 10), 10)] {
        let counts = &expect_parity(world_size, "joinables", &[])?[0]["counts"];
        ensure!(counts.bytes == [samples, steps].map(i64::to_le_bytes).concat(), "{counts:?}");
    }
    Ok(())
}
