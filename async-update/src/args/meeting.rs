//! How ranks meet.

use std::time::Duration;
use tch_parallel::distributed::{DeviceChoice, ProcessGroupOptions};

/// The flags of whatever starts as several ranks.
#[derive(Debug, clap::Args)]
pub struct MeetingArgs {
    /// Seconds to wait for another rank.
    #[arg(long, default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

impl MeetingArgs {
    /// On the CPU, where every byte can be counted.
    pub fn process_group(&self) -> ProcessGroupOptions {
        ProcessGroupOptions {
            device: DeviceChoice::Cpu,
            timeout: Duration::from_secs(self.timeout),
            ..Default::default()
        }
    }
}
