//! The values of `--rdzv-endpoint` and `--rdzv-backend`, for torchrun's static rendezvous.

use std::str::FromStr;

use anyhow::{Context, Result, ensure};

/// The value of `--rdzv-endpoint`: MASTER_ADDR and MASTER_PORT in one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    /// MASTER_ADDR.
    pub(crate) host: String,
    /// MASTER_PORT.
    pub(crate) port: u16,
}

impl FromStr for Endpoint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let (host, port) = parts.context("expected HOST:PORT, as in 10.0.0.1:29500")?;
        let port: Option<u16> = port.parse().ok().filter(|port| *port > 0);
        let port = port.context("expected a port from 1 to 65535 after the last colon")?;
        // Brackets separate the colons of an IPv6 address from the port's.
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Ok(Endpoint { host: address.unwrap_or(host).to_owned(), port })
    }
}

/// Parses the value of `--rdzv-backend`. torchrun's other backends number the nodes by themselves.
pub(crate) fn parse_backend(text: &str) -> Result<String> {
    ensure!(
        text == "static",
        "only the static backend is supported: start launch on every node with --node-rank K and \
         --master-addr HOST, or on a single node with neither"
    );
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("10.0.0.1:29500", "10.0.0.1", 29500),
            ("node-0.cluster:1", "node-0.cluster", 1),
            ("[fe80::1]:4000", "fe80::1", 4000),
        ] {
            let expected = Endpoint { host: host.to_owned(), port };
            assert_eq!(text.parse::<Endpoint>().unwrap(), expected);
        }
    }

    #[test]
    fn an_endpoint_without_a_host_or_a_port_is_refused() {
        for text in ["", "host", ":29500", "host:", "host:0", "host:65536", "[fe80::1]"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_the_static_backend_is_supported() {
        assert_eq!(parse_backend("static").unwrap(), "static");
        for text in ["c10d", "etcd", "etcd-v2", ""] {
            let message = parse_backend(text).unwrap_err().to_string();
            assert!(message.contains("--node-rank K and --master-addr HOST"), "{message}");
        }
    }
}
