//! The communication hooks of DistributedDataParallel, as flags.

use clap::{Args, ValueEnum};
use tch_parallel::Result;
use tch_parallel::distributed::hooks::{AllReduce, Bf16Compress, CommHook, Fp16Compress};
use tch_parallel::distributed::hooks::{PowerSgd, PowerSgdOptions};

/// The flags of the communication hook.
#[derive(Debug, Args)]
pub struct CommHookArgs {
    /// Exchange gradients with this communication hook.
    #[arg(long, value_enum)]
    comm_hook: Option<Choice>,
    /// Rank of the matrices that PowerSGD exchanges.
    #[arg(long, requires = "comm_hook", default_value_t = PowerSgdOptions::default().matrix_approximation_rank)]
    power_sgd_rank: usize,
    /// Steps before PowerSGD starts to compress.
    #[arg(long, requires = "comm_hook", default_value_t = PowerSgdOptions::default().start_power_sgd_iter)]
    start_power_sgd_iter: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Choice {
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
    /// The chosen hook, if any. PowerSGD has a state that no checkpoint contains.
    pub fn hook(&self) -> Result<Option<Box<dyn CommHook>>> {
        Ok(match self.comm_hook {
            None => None,
            Some(Choice::Allreduce) => Some(Box::new(AllReduce)),
            Some(Choice::Fp16) => Some(Box::new(Fp16Compress)),
            Some(Choice::Bf16) => Some(Box::new(Bf16Compress)),
            Some(Choice::PowerSgd) => Some(Box::new(PowerSgd::new(PowerSgdOptions {
                matrix_approximation_rank: self.power_sgd_rank,
                start_power_sgd_iter: self.start_power_sgd_iter,
                ..Default::default()
            })?)),
        })
    }
}
