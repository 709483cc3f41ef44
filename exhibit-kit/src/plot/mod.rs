//! Charts as SVG: text that every browser draws, at every size. A file of its own is a white card; as
//! a part of a page, a chart has the page's colours.
//!
//! Each chart is a function from plain data to the text of an SVG file. The same data gives the
//! same bytes, so a chart can be kept in version control and compared.
//!
//! | file | what it holds |
//! |---|---|
//! | `timeline` | [`timeline()`]: what each device did when |
//! | `bars` | [`bars()`]: amounts side by side, each the sum of its parts |
//! | `lines` | [`lines()`]: curves over a common axis, linear or logarithmic |
//! | `panels` | [`panels()`]: the same, each curve in a panel of its own |
//! | `flags` | [`PlotArgs`], [`SvgArgs`]: where a program's pictures are drawn |
//! | `canvas` | the card that all charts are drawn on: title, legend, text that fits |
//! | `axes` | lines at the ticks, labels that do not overlap, titles |
//! | `range` | where the ticks of an axis are, and what is written at them |
//! | `palette` | nine colours that can be told apart |
//!
//! In a file that is opened on its own, pointing at a bar or a span shows its exact value.

mod axes;
mod bars;
mod canvas;
mod flags;
mod lines;
mod palette;
mod panels;
mod range;
#[cfg(test)]
mod testing;
mod timeline;

pub use bars::{Bars, Group, Unit, bars};
pub use flags::{PlotArgs, SvgArgs};
pub use lines::{Axis, Lines, Scale, Series, lines};
pub use panels::panels;
pub use timeline::{Lane, Span, Timeline, timeline};
