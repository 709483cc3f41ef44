//! What the programs of this package share: the networks.

pub mod models;
