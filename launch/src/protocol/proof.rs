//! Proofs that a launcher knows the job's secret, without sending it.

use anyhow::{Context, Result};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The variable with the job's secret. If it is unset, only the job's ID keeps launchers apart.
pub(crate) const SECRET: &str = "TCH_PARALLEL_SECRET";

/// Which side proves: a proof is no use to the other.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Agent,
    Coordinator,
}

/// What both sides know after the first two messages.
pub(crate) struct Transcript<'a> {
    pub(crate) job: &'a str,
    pub(crate) agent_nonce: &'a str,
    pub(crate) coordinator_nonce: &'a str,
}

impl Transcript<'_> {
    pub(crate) fn prove(&self, secret: &[u8], side: Side) -> Result<String> {
        Ok(hex(&self.mac(secret, side)?.finalize().into_bytes()))
    }

    /// Whether a proof is the one of this side. Takes as long for any wrong one.
    pub(crate) fn verify(&self, secret: &[u8], side: Side, proof: &str) -> Result<bool> {
        let Some(proof) = unhex(proof) else { return Ok(false) };
        Ok(self.mac(secret, side)?.verify_slice(&proof).is_ok())
    }

    fn mac(&self, secret: &[u8], side: Side) -> Result<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).context("cannot use the secret")?;
        let side = match side {
            Side::Agent => "agent",
            Side::Coordinator => "coordinator",
        };
        for part in [side, self.job, self.agent_nonce, self.coordinator_nonce] {
            // With their lengths, no two lists of parts are the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Ok(mac)
    }
}

/// A number that nobody can guess.
pub(crate) fn nonce() -> Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("cannot get random bytes")?;
    Ok(hex(&bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSCRIPT: Transcript<'_> =
        Transcript { job: "j", agent_nonce: "aa", coordinator_nonce: "bb" };

    #[test]
    fn a_proof_holds_for_its_secret_side_job_and_nonces_only() {
        let proof = TRANSCRIPT.prove(b"secret", Side::Agent).unwrap();
        let holds = |transcript: &Transcript<'_>, secret: &[u8], side| {
            transcript.verify(secret, side, &proof).unwrap()
        };
        assert!(holds(&TRANSCRIPT, b"secret", Side::Agent));
        assert!(!holds(&TRANSCRIPT, b"", Side::Agent));
        assert!(!holds(&TRANSCRIPT, b"secret", Side::Coordinator));
        for (job, agent_nonce, coordinator_nonce) in
            [("k", "aa", "bb"), ("j", "ab", "bb"), ("j", "aa", "b"), ("ja", "a", "bb")]
        {
            let other = Transcript { job, agent_nonce, coordinator_nonce };
            assert!(!holds(&other, b"secret", Side::Agent));
        }
    }

    #[test]
    fn what_is_no_hexadecimal_is_no_proof() {
        for text in ["", "0", "xy", "é", "00"] {
            assert!(!TRANSCRIPT.verify(b"", Side::Agent, text).unwrap(), "{text:?}");
        }
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
