//! The communication hooks that can be chosen on the command line.

use clap::{Args, ValueEnum};
use tch_parallel::Result;
use tch_parallel::distributed::DistributedDataParallel;
use tch_parallel::distributed::hooks::{
    AllReduce, Bf16Compress, Fp16Compress, PowerSgd, PowerSgdOptions,
};

/// The flags that say how gradients are exchanged.
#[derive(Debug, Args)]
pub struct CommHookArgs {
    /// Exchange gradients by a communication hook.
    #[arg(long, value_enum)]
    comm_hook: Option<CommHook>,
    /// The rank of the matrices that PowerSGD exchanges.
    #[arg(long, default_value_t = PowerSgdOptions::default().matrix_approximation_rank)]
    power_sgd_rank: usize,
    /// How many steps PowerSGD leaves the gradients as they are.
    #[arg(long, default_value_t = PowerSgdOptions::default().start_power_sgd_iter)]
    start_power_sgd_iter: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CommHook {
    /// The mean, as without a hook.
    Allreduce,
    /// The mean in float16.
    Fp16,
    /// The mean in bfloat16.
    Bf16,
    /// Matrices of low rank.
    PowerSgd,
}

impl CommHookArgs {
    /// Gives the model the chosen hook, if one is.
    pub fn register<M>(&self, model: &DistributedDataParallel<M>) -> Result<()> {
        match self.comm_hook {
            None => Ok(()),
            Some(CommHook::Allreduce) => model.register_comm_hook(AllReduce),
            Some(CommHook::Fp16) => model.register_comm_hook(Fp16Compress),
            Some(CommHook::Bf16) => model.register_comm_hook(Bf16Compress),
            Some(CommHook::PowerSgd) => model.register_comm_hook(PowerSgd::new(PowerSgdOptions {
                matrix_approximation_rank: self.power_sgd_rank,
                start_power_sgd_iter: self.start_power_sgd_iter,
                ..Default::default()
            })?),
        }
    }
}
