//! What explains and compares trainings: the exhibits of this workspace's programs share it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`comparison`] | trainings that a program starts, and their devices side by side |
//! | [`multiprocessing`] | processes that a program starts, with a time limit |
//! | [`plot`] | charts as SVG files: timelines, bars, lines |
//! | [`template`] | text files with placeholders for functions and numbers |
//! | [`weights`] | weights and gradients of whole models |

#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod comparison;
pub mod multiprocessing;
pub mod plot;
pub mod template;
pub mod weights;
