//! Charts as SVG: functions from plain data to the text of a file. A file of its own is a white card; as a part of a
//! page, a chart has the page's colours. The same data gives the same bytes, so a chart can be kept and compared.
//!
//! | file | what it holds |
//! |---|---|
//! | `timeline` | [`timeline()`]: what each device did when |
//! | `bars` | [`bars()`]: amounts side by side, each the sum of its parts |
//! | `lines` | [`lines()`]: curves over a common axis, linear or logarithmic |
//! | `panels` | [`panels()`]: the same, each curve in a panel of its own |
//! | `flags` | [`PlotArgs`], [`SvgArgs`]: where a program's pictures are drawn |
//! | `card` | what all charts are drawn on: title, legend, colours |

mod bars;
mod card;
mod flags;
mod lines;
mod panels;
#[cfg(test)]
mod tests;
mod timeline;

pub use bars::{Bars, Group, Unit, bars};
pub use flags::{PlotArgs, SvgArgs};
pub use lines::{Lines, Scale, Series, lines};
pub use panels::panels;
pub use timeline::{Lane, Span, Timeline, timeline};
