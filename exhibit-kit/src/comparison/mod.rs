//! What the `compare` subcommands share: they train with one method after the other, and show all side by side.
//!
//! | file | what it holds |
//! |---|---|
//! | `training` | [`Comparison`] runs each [`Training`]: this program with other flags; [`Metrics`]: what that wrote |
//! | `devices` | [`device_bars`] and [`memory_bars`]: the devices of all trainings side by side |
//!
//! A training asks [`is_measured`] whether a comparison has started it.

mod devices;
mod training;

pub use devices::{device_bars, memory_bars};
pub use training::{Comparison, Metrics, Training, Workers, equal_share, is_measured};
