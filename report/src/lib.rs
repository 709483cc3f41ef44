//! What a training loop tells, and the flags and the end of its program.
//!
//! None of this is needed to train: the library is the crate [`tch_parallel`].
//!
//! | module | what it holds |
//! |---|---|
//! | `metrics_log` | [`MetricsLog`], [`read_events`]: numbers for other programs, as JSON lines |
//! | `tensorboard` | the same numbers for TensorBoard |
//! | `record_file` | the file behind both: whole records, also on a full disk |
//! | `step` | [`Step`]: the loss of a batch, an event of the metrics |
//! | `pass` | [`Pass`], [`Meters`]: what the steps of one pass over a data set measure |
//! | `run` | [`Run`]: everything that a training loop reports |
//! | `in_flight` | what a step measured, on its way from the device |
//! | `meter` | [`Meter`], [`DeviceReport`]: what each device holds and does in a training step |
//! | `timing` | [`Timing`]: how long a run took to begin, and how long its steps take; [`median`], [`unix_seconds`] |
//! | [`console`] | [`println!`], [`eprintln!`]: what people read, and perhaps nobody |
//! | `progress` | [`say`], [`progress_bar`]: the progress of a training, for people |
//! | `table` | [`aligned`]: numbers in columns, for people |
//! | `command_line` | [`parse`]: the command line, as argparse would read it; [`parse_flags`]: a part of one |
//! | `vocabulary` | [`Originals`]: the original's flags, and what stands for them here ([`Here`]) |
//! | `comm_hook` | [`CommHookArgs`]: how gradients are compressed |
//! | `mnist` | [`MnistArgs`]: MNIST and what has its form |
//! | `precision` | [`Precision`]: 16-bit floats |
//! | `devices` | [`DevicesArgs`]: the devices of a training, and those of one of its processes |
//! | `bytes` | [`size`]: amounts of memory, as people write them |
//! | `exit` | [`exit`](fn@exit): the end of a rank, and why it failed |
//! | `file` | [`save`]: writes a text to a file |
//! | `flags` | [`ProcessGroupArgs`]: where a rank trains and how it meets the others; [`ReportArgs`]: what it writes; [`Resume`]; [`flag_value`]; [`positive`]; [`say_unused_gpus`] |

#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bytes;
mod comm_hook;
mod command_line;
pub mod console;
mod devices;
mod exit;
mod file;
mod flags;
mod in_flight;
mod meter;
mod metrics_log;
mod mnist;
mod pass;
mod precision;
mod progress;
mod record_file;
mod run;
mod step;
mod table;
mod tensorboard;
mod timing;
mod vocabulary;

pub use bytes::{parse_size, size};
pub use comm_hook::CommHookArgs;
pub use command_line::{parse, parse_flags};
pub use devices::{DevicesArgs, one_thread_each, process_group_on};
pub use exit::exit;
pub use file::save;
pub use flags::{ProcessGroupArgs, ReportArgs, Resume, flag_value, positive, say_unused_gpus};
pub use meter::{DeviceReport, Meter};
pub use metrics_log::{MetricsLog, read_events};
pub use mnist::MnistArgs;
pub use pass::{Batches, Meters, Pass};
pub use precision::Precision;
pub use progress::{progress_bar, say};
pub use run::{Progress, Run};
pub use step::Step;
pub use table::{aligned, hours, thousands};
pub use timing::{Summary, Timing, median, unix_seconds};
pub use vocabulary::{Here, Originals};
