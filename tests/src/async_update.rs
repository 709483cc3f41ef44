//! What async-update's methods write if they are started with [`METRICS`].

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::training::events;

/// The flag that makes a method write its metrics to the job's directory.
pub const METRICS: &str = "--metrics=metrics";

/// The event `outcome` that rank 0 writes at the end.
pub fn outcome(directory: &Path) -> Result<Value> {
    let outcomes = events(directory, 0, "outcome", |outcome| Some(outcome.clone()))?;
    outcomes.into_iter().next().context("no outcome")
}

/// One of an event's numbers.
pub fn number(event: &Value, name: &str) -> Result<f64> {
    event[name].as_f64().with_context(|| format!("{name} in {event}"))
}
