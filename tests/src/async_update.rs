//! What async-update's methods leave behind, told so by [`METRICS`].

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::training::events;

/// Where a method that a test looks at writes its metrics, in the job's directory.
pub const METRICS: &str = "--metrics=metrics";

/// What rank 0 has come to in the end.
pub fn outcome(directory: &Path) -> Result<Value> {
    let outcomes = events(directory, 0, "outcome", |outcome| Some(outcome.clone()))?;
    outcomes.into_iter().next().context("no outcome")
}

/// One of an event's numbers.
pub fn number(event: &Value, name: &str) -> Result<f64> {
    event[name].as_f64().with_context(|| format!("{name} in {event}"))
}
