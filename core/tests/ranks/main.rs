//! What ranks do together. The body of a test runs on each of them, in a process of its own.
//!
//! One program instead of one for each subject: that many would take minutes to link.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

mod apex;
mod batches;
mod checkpoint;
mod collectives;
mod collectives_mixed;
mod comm_hook_failures;
mod comm_hooks;
mod ddp;
mod ddp_hooks;
mod ddp_models;
mod ddp_parity;
mod diloco;
mod fully_shard;
mod fully_shard_checkpoint;
mod fully_shard_comm;
mod fully_shard_deaths;
mod fully_shard_failures;
mod fully_shard_parity;
mod fully_shard_training;
mod fully_shard_twins;
mod fully_shard_units;
mod functional;
mod gathering;
mod grad_scaler;
mod join;
mod joinables;
mod mixed;
mod mixed_precision;
mod new_group;
mod objects;
mod point_to_point;
mod prelude;
mod profiler;
mod soundness;
mod store;
mod sync_batch_norm;
mod sync_batch_norm_ddp;
mod transport;
mod virtual_ranks;
mod weights;
mod zero_redundancy;
