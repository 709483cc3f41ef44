//! What most of these tests use.

pub(crate) use std::os::unix::fs::symlink;
pub(crate) use tests::parity::{Both, FILE, expect_equal_tensors};
pub(crate) use tests::prelude::*;
pub(crate) use tests::programs::*;
pub(crate) use tests::safetensors::{Tensor, Tensors};
pub(crate) use tests::training::{OUTPUTS, events, losses, stop_after_first_step, wait_for_steps};
pub(crate) use tests::{Ended, Hosts, Job, Process, Shared, Training};
pub(crate) use tests::{digits, printed, printed_and_written, python};
pub(crate) use tests::{expect_all_succeed, expect_refusal, expect_refusals, expect_texts};

/// Tests that differ only in what they give to one and the same function.
macro_rules! cases {
    ($($(#[$about:meta])* fn $name:ident() = $call:expr;)+) => {$(
        $(#[$about])*
        #[test]
        fn $name() -> Result<()> {
            $call
        }
    )+};
}
pub(crate) use cases;
