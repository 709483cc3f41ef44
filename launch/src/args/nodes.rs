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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_fixed_and_a_range_is_elastic() {
        for (text, min, max) in [("3", 3, 3), ("2:2", 2, 2), ("1:4", 1, 4)] {
            let nodes: Nodes = text.parse().unwrap();
            assert_eq!((nodes.min, nodes.max, nodes.elastic()), (min, max, min < max));
        }
        assert_eq!("2:2".parse::<Nodes>().unwrap().to_string(), "2");
        assert_eq!("1:4".parse::<Nodes>().unwrap().to_string(), "1:4");
    }

    #[test]
    fn no_node_and_a_range_backwards_are_refused() {
        for text in ["0", "0:2", "3:2", "", "x", "1:", ":1", "-1", "1:2:3"] {
            assert!(text.parse::<Nodes>().is_err(), "{text:?}");
        }
    }
}
