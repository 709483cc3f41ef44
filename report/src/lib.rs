//! What a program tells whoever watches it, and how it starts others.
//!
//! None of this is needed to train: the library is the crate [`tch_parallel`]. The programs of this
//! workspace share it.
//!
//! | module | what it holds |
//! |---|---|
//! | `metrics_log` | [`MetricsLog`], [`read_events`]: numbers for other programs, as JSON lines |
//! | `step` | [`Step`]: the loss of a batch, an event of the metrics |
//! | `meter` | [`Meter`], [`DeviceReport`]: what each device holds and does in a training step |
//! | `timing` | [`Timing`]: how long a run took to begin, and a step; [`median`] |
//! | `progress` | [`say`], [`progress_bar`]: how far a training is, for a person |
//! | `table` | [`table()`]: numbers for a person, in columns |
//! | [`template`] | text files with holes, which functions and numbers fill |
//! | `bytes` | [`size`]: amounts of memory, as people write them |
//! | `exit` | [`exit_code`]: why a rank failed; [`refused`], [`malformed`]: what is wrong with an argument or a file |
//! | `file` | [`save`]: a text in a file |
//! | [`plot`] | charts as SVG files: timelines, bars, lines |
//! | `flags` | [`ProcessGroupArgs`]: where a rank trains and how it meets the others; [`flag_value`] |
//! | [`multiprocessing`] | processes that a program starts, with a time limit |
//! | [`comparison`] | trainings that a program starts, and their devices side by side |

#![deny(missing_docs)]

mod bytes;
pub mod comparison;
mod exit;
mod file;
mod flags;
mod meter;
mod metrics_log;
pub mod multiprocessing;
pub mod plot;
mod progress;
mod step;
mod table;
pub mod template;
mod timing;

pub use bytes::{parse_size, size};
pub use exit::{exit_code, malformed, refused};
pub use file::save;
pub use flags::{ProcessGroupArgs, flag_value};
pub use meter::{DeviceReport, Meter};
pub use metrics_log::{MetricsLog, read_events};
pub use progress::{progress_bar, say};
pub use step::Step;
pub use table::{Column, hours, milliseconds, table, thousands};
pub use timing::{Summary, Timing, median};
