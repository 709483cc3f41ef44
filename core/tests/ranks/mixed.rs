//! Calls that a rank in Python cannot answer.

use crate::common;
use std::process::{Command, Stdio};
use tch::Device;
use tch::nn::{self, VarStore};
use tch_parallel::checkpoint::Training;
use tch_parallel::distributed::init_process_group;
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions, ZeroRedundancyOptimizer};
use tests::python;

#[test]
fn calls_that_python_cannot_answer_say_so_at_once() {
    let python_on_rank_1 = |rank, command: Command| {
        if rank == 0 {
            return command;
        }
        let mut python = python("bystander", []).unwrap();
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        python.envs(variables);
        python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        python
    };
    common::processes_from(2, this_test!(), python_on_rank_1, || {
        let group = init_process_group(common::options()).unwrap();
        let mut vs = VarStore::new(Device::Cpu);
        let _layer = nn::linear(vs.root(), 2, 1, Default::default());
        let mut optimizer = Sgd::new(&vs, SgdOptions::default()).unwrap();
        let mut training = Training {
            architecture: "linear",
            vs: &mut vs,
            optimizer: &mut optimizer,
            scheduler: None,
            scaler: None,
        };
        let errors = [
            training.save("never.safetensors", &0, &group).unwrap_err(),
            training.load::<i64>("never.safetensors", &group).unwrap_err(),
            group.all_gather_object(&0).unwrap_err(),
            group.broadcast_object(&mut 0, 0).unwrap_err(),
            group.gather_object(&0, 0).unwrap_err(),
            group.scatter_object(Some(&[0, 1]), 0).unwrap_err(),
            group.new_group(&[0, 1]).unwrap_err(),
        ];
        for error in errors {
            let error = error.to_string();
            assert!(error.contains("is called with rank 1, which runs Python"), "{error}");
        }
        let error = ZeroRedundancyOptimizer::new(optimizer, &group).consolidate_state_dict(0);
        assert!(error.unwrap_err().to_string().contains("rank 1, which runs Python"));
        assert!(group.new_group(&[0]).unwrap().is_some());
        group.barrier().unwrap();
    });
}
