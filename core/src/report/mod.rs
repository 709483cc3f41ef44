//! What a program tells whoever watches it.
//!
//! | file | what it holds |
//! |---|---|
//! | `metrics_log` | [`MetricsLog`]: numbers for other programs, as JSON lines |
//! | `timing` | [`Timing`]: how long a run took to begin, and a step |
//! | `progress` | [`progress_bar`]: how far an epoch is, for a person |
//! | `table` | [`table()`]: numbers for a person, in columns |
//! | `exit` | [`exit_code`]: why a rank failed |
//! | [`plot`] | charts as SVG files: timelines, bars, lines |

mod exit;
mod metrics_log;
pub mod plot;
mod progress;
mod table;
mod timing;

pub use exit::exit_code;
pub use metrics_log::MetricsLog;
pub use progress::progress_bar;
pub use table::{Column, milliseconds, table, thousands};
pub use timing::{Summary, Timing};
