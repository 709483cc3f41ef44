//! What explains and compares rather than trains.
//!
//! | folder | what it shows |
//! |---|---|
//! | [`compare`] | `dp-custom-criterion compare`: every method in turn, and what it needs |

pub mod compare;
