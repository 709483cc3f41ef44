//! Flags that several programs have, and what the user gives them.

use clap::builder::PossibleValue;
use clap::{ValueEnum, value_parser};
use std::time::Duration;
use tch_parallel::distributed::{Backend, DeviceChoice, ProcessGroupOptions};

/// Where a rank trains and how it meets the others.
#[derive(Debug, Clone, clap::Args)]
pub struct ProcessGroupArgs {
    /// Device to train on: cpu, cuda or auto.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Backend of the collectives: gloo or nccl [default: nccl for cuda, else gloo].
    #[arg(long)]
    backend: Option<Backend>,
    /// Seconds to wait for another rank.
    #[arg(long, default_value_t = 1800, value_parser = value_parser!(u64).range(1..))]
    timeout: u64,
}

impl ProcessGroupArgs {
    /// What [`init_process_group`](tch_parallel::distributed::init_process_group) takes.
    pub fn options(&self) -> ProcessGroupOptions {
        ProcessGroupOptions {
            backend: self.backend,
            device: self.device,
            timeout: Duration::from_secs(self.timeout),
        }
    }
}

/// The value of a flag, as the user writes it.
///
/// ```
/// #[derive(Clone, clap::ValueEnum)]
/// enum Method {
///     DataParallel,
/// }
///
/// assert_eq!(report::flag_value(&Method::DataParallel), "data-parallel");
/// ```
pub fn flag_value(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.as_ref().map_or("", PossibleValue::get_name).to_owned()
}
