//! The communication hooks that the command line offers.

use clap::{Args, ValueEnum};
use tch_parallel::Result;
use tch_parallel::distributed::DistributedDataParallel;
use tch_parallel::distributed::hooks::{
    AllReduce, Bf16Compress, Fp16Compress, PowerSgd, PowerSgdOptions,
};

/// The flags of the communication hook.
#[derive(Debug, Args)]
pub struct CommHookArgs {
    /// Exchange gradients with this communication hook.
    #[arg(long, value_enum)]
    comm_hook: Option<CommHook>,
    /// Rank of the matrices that PowerSGD exchanges.
    #[arg(long, default_value_t = PowerSgdOptions::default().matrix_approximation_rank)]
    power_sgd_rank: usize,
    /// Steps before PowerSGD starts to compress.
    #[arg(long, default_value_t = PowerSgdOptions::default().start_power_sgd_iter)]
    start_power_sgd_iter: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CommHook {
    /// Average the gradients, as without a hook.
    Allreduce,
    /// Average them in float16.
    Fp16,
    /// Average them in bfloat16.
    Bf16,
    /// Compress them into matrices of low rank.
    PowerSgd,
}

impl CommHookArgs {
    /// Registers the chosen hook, if any.
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
