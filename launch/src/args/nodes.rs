//! The value of `--nnodes`: a number of nodes, or a range for an elastic job.

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Nodes {
    pub(crate) min: u16,
    pub(crate) max: u16,
}

impl Nodes {
    /// Whether nodes may leave and join while the job runs.
    pub(crate) fn elastic(self) -> bool {
        self.min < self.max
    }
}

impl FromStr for Nodes {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        let (Ok(min), Ok(max)) = (min.parse(), max.parse()) else {
            bail!("expected a number of nodes, as in --nnodes 2, or a range, as in --nnodes 1:4");
        };
        ensure!(min > 0, "the world size would be 0: give at least one node");
        ensure!(min <= max, "expected MIN:MAX, but {min} is more than {max}");
        Ok(Nodes { min, max })
    }
}

impl Display for Nodes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.elastic() {
            true => write!(f, "{}:{}", self.min, self.max),
            false => write!(f, "{}", self.max),
        }
    }
}
