//! The value of `--tee` and `--redirects`: which streams of which ranks.

use anyhow::{Context, Result, bail};
use std::{collections::BTreeMap, str::FromStr};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Streams {
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Streams {
    pub(crate) const BOTH: Streams = Streams { stdout: true, stderr: true };

    pub(crate) fn any(self) -> bool {
        self.stdout || self.stderr
    }
}

impl FromStr for Streams {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (stdout, stderr) = match text {
            "0" => (false, false),
            "1" => (true, false),
            "2" => (false, true),
            "3" => (true, true),
            _ => bail!("expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), not {text:?}"),
        };
        Ok(Streams { stdout, stderr })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StreamChoice {
    /// Per local rank: `0:1,1:2`.
    listed: BTreeMap<u16, Streams>,
    /// Of ranks that are not listed: `3` for every rank, and none beside a list.
    others: Streams,
}

impl StreamChoice {
    pub(crate) fn of(&self, local_rank: u16) -> Streams {
        self.listed.get(&local_rank).copied().unwrap_or(self.others)
    }

    pub(crate) fn any(&self) -> bool {
        self.others.any() || self.listed.values().any(|streams| streams.any())
    }

    /// The highest rank listed, to be checked against the number of ranks.
    pub(crate) fn highest_rank(&self) -> Option<u16> {
        self.listed.keys().next_back().copied()
    }
}

impl FromStr for StreamChoice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if !text.contains(':') {
            return Ok(StreamChoice { others: text.parse()?, ..StreamChoice::default() });
        }
        let rank_and_streams = |item: &str| {
            let wrong = || format!("expected RANK:STREAMS, as in 0:1,1:2, not {item:?}");
            let (rank, streams) = item.split_once(':').with_context(wrong)?;
            let number = rank.parse().ok().with_context(|| format!("{rank:?} is not a local rank"));
            Ok((number?, streams.parse()?))
        };
        let listed = text.split(',').map(rank_and_streams).collect::<Result<_>>()?;
        Ok(StreamChoice { listed, ..StreamChoice::default() })
    }
}
