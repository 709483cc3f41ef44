//! What the `compare` subcommands have in common: they train with one method after the other, each
//! in its own processes, and show the measurements of the trainings side by side.
//!
//! | file | what it holds |
//! |---|---|
//! | `training` | [`Comparison`] runs each [`Training`]: this program with other flags; [`Metrics`]: what that wrote |
//! | `devices` | [`device_bars`] and [`memory_bars`]: the devices of all trainings side by side |
//!
//! A training asks [`is_measured`] whether a comparison has started it.
//!
//! ```no_run
//! use report::Summary;
//! use exhibit_kit::comparison::{Comparison, Training, Workers};
//!
//! let comparison = Comparison::new(600)?;
//! for method in ["data-parallel", "ddp"] {
//!     let training = Training {
//!         name: method.into(),
//!         flags: vec![format!("--method={method}").into(), "--devices=2xcpu".into()],
//!         workers: if method == "ddp" { Workers::Ranks(2) } else { Workers::Process },
//!         single_threaded: false,
//!     };
//!     let metrics = comparison.run(&training, |line| eprintln!("{method:<14}| {line}"))?;
//!     for device in metrics.devices(2)? {
//!         println!("{method}: {device}");
//!     }
//!     for end in metrics.events::<Summary>("end")? {
//!         println!("{method}: {:?} s", end.step_seconds_median);
//!     }
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```

mod devices;
mod training;

pub use devices::{device_bars, memory_bars};
pub use training::{Comparison, Metrics, Training, Workers, equal_share, is_measured};
