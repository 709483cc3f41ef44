//! The article's two asynchronous stories, number by number.
//!
//! | file | what it holds |
//! |---|---|
//! | `stories` | case 1: one update each, the same as a synchronous update; case 2: four updates to one |
//! | `gpus` | the two GPUs, their losses, and the parameters that they share |
//! | `case1.jinja`, `case2.jinja` | what is told of each; `gpus.jinja` is a part of both |
//! | `optimizers` | where case 1 stops being the same |

mod gpus;
mod optimizers;
mod stories;

pub use stories::Story;
