//! The ways of training that are compared.

use clap::ValueEnum;
use std::fmt;

/// How a batch is shared out among devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// One process with one device.
    Single,
    /// One process with several devices: DataParallel.
    DataParallel,
    /// A process for each device: DistributedDataParallel.
    Ddp,
    /// A process for each device: Apex's DistributedDataParallel, which counts batch and workers for
    /// each process.
    Apex,
}

impl Method {
    /// Whether every device has a process of its own.
    pub fn is_distributed(self) -> bool {
        matches!(self, Method::Ddp | Method::Apex)
    }
}

impl fmt::Display for Method {
    /// As the flag has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Method::Single => "single",
            Method::DataParallel => "data-parallel",
            Method::Ddp => "ddp",
            Method::Apex => "apex",
        })
    }
}
