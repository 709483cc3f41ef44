//! The values of `--rdzv-backend`, `--rdzv-endpoint` and `--rdzv-conf`: where and how the nodes of a job meet.

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use std::{str::FromStr, time::Duration};

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Backend {
    /// By `--node-rank`
    Static,
    /// By arrival; required for elastic jobs
    C10d,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    /// The port, if the flag gives one; 0 is a free one.
    pub(crate) port: Option<u16>,
}

impl FromStr for Endpoint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        // Brackets separate the colons of an IPv6 address from the port's.
        let is_in_brackets = text.starts_with('[') && text.ends_with(']');
        let split = text.rsplit_once(':').filter(|_| !is_in_brackets);
        let (host, port) = split.map_or((text, None), |(host, port)| (host, Some(port)));
        ensure!(!host.is_empty(), "expected HOST:PORT, as in 10.0.0.1:29500");
        let wrong = "expected a port from 0 to 65535 after the last colon, 0 for a free one";
        let port = port.map(|port| port.parse().ok().context(wrong)).transpose()?;
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Ok(Endpoint { host: address.unwrap_or(host).to_owned(), port })
    }
}

/// The value of `--rdzv-conf`: `KEY=VALUE,KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conf {
    pub(crate) join_timeout: Duration,
    pub(crate) last_call_timeout: Duration,
    /// Whether this node is the one where the others meet; by default, the one whose address the endpoint is.
    pub(crate) is_host: Option<bool>,
    pub(crate) check_program: bool,
}

impl FromStr for Conf {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut conf = Conf {
            join_timeout: Duration::from_secs(600),
            last_call_timeout: Duration::from_secs(30),
            is_host: None,
            check_program: true,
        };
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let wrong = || format!("expected KEY=VALUE, as in join_timeout=60, not {pair:?}");
            let (key, value) = pair.split_once('=').with_context(wrong)?;
            match key.trim() {
                "join_timeout" | "timeout" => conf.join_timeout = seconds(key, value)?,
                "last_call_timeout" => conf.last_call_timeout = seconds(key, value)?,
                "is_host" => conf.is_host = Some(truth(key, value)?),
                "check_program" => conf.check_program = truth(key, value)?,
                // torchrun's keys that mean nothing to launch.
                "close_timeout" | "read_timeout" | "store_type" => {}
                "keep_alive_interval" | "keep_alive_max_attempt" => {}
                key => bail!(
                    "unknown key {key:?}: expected join_timeout, last_call_timeout, is_host or \
                     check_program"
                ),
            }
        }
        Ok(conf)
    }
}

fn seconds(key: &str, value: &str) -> Result<Duration> {
    // Adding u64::MAX seconds to an Instant would overflow.
    let seconds = value.trim().parse::<u32>().ok().filter(|seconds| *seconds > 0);
    let wrong = || format!("expected 1 to {} seconds after {key}=, not {value:?}", u32::MAX);
    Ok(Duration::from_secs(seconds.with_context(wrong)?.into()))
}

fn truth(key: &str, value: &str) -> Result<bool> {
    match value.trim().to_lowercase().as_str() {
        "1" | "true" | "t" | "yes" | "y" => Ok(true),
        "0" | "false" | "f" | "no" | "n" => Ok(false),
        _ => bail!("expected 0 or 1 after {key}=, not {value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_perhaps_a_port() {
        for (text, host, port) in [
            ("10.0.0.1:29500", "10.0.0.1", Some(29500)),
            ("node-0.cluster:1", "node-0.cluster", Some(1)),
            ("[fe80::1]:4000", "fe80::1", Some(4000)),
            ("[fe80::1]", "fe80::1", None),
            ("node-0", "node-0", None),
            ("localhost:0", "localhost", Some(0)),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap(), Endpoint { host: host.to_owned(), port });
        }
    }

    #[test]
    fn the_configuration_has_torchruns_keys_and_defaults() {
        let conf: Conf = "".parse().unwrap();
        assert_eq!((conf.join_timeout.as_secs(), conf.last_call_timeout.as_secs()), (600, 30));
        assert_eq!((conf.is_host, conf.check_program), (None, true));
        let text = "timeout=5, last_call_timeout=2,is_host=true,read_timeout=9,check_program=0";
        let expected = Conf {
            join_timeout: Duration::from_secs(5),
            last_call_timeout: Duration::from_secs(2),
            is_host: Some(true),
            check_program: false,
        };
        assert_eq!(text.parse::<Conf>().unwrap(), expected);
        let error = "join_timeout=4294967296".parse::<Conf>().unwrap_err().to_string();
        let expected = "expected 1 to 4294967295 seconds after join_timeout=, not \"4294967296\"";
        assert_eq!(error, expected);
    }
}
