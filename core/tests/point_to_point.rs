//! Messages between two ranks.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

use std::time::Duration;
use tch::Tensor;
use tch_parallel::distributed::{P2pOp, ProcessGroup};

fn message(number: usize) -> Tensor {
    Tensor::from_slice(&[number as f64])
}

fn number(tensor: &Tensor) -> f64 {
    tensor.double_value(&[0])
}

on_ranks!(
    2,
    fn a_message_is_received_with_the_tag_with_which_it_was_sent(group: &ProcessGroup) {
        let tags = [1, 2, 0];
        if group.rank() == 0 {
            let send = |tag| group.with_tag(tag).isend(message(tag as usize), 1).unwrap();
            for sent in tags.map(send) {
                let _ = sent.wait().unwrap();
            }
            return;
        }
        for tag in [0, 1, 2] {
            let mut received = message(9);
            group.with_tag(tag).recv(&mut received, 0).unwrap();
            assert_eq!(number(&received), f64::from(tag));
        }
    }
);

on_ranks!(
    3,
    fn a_message_from_any_rank_comes_with_that_rank(group: &ProcessGroup) {
        if group.rank() > 0 {
            return group.send(&message(group.rank()), 0).unwrap();
        }
        let mut received = message(9);
        let first = group.recv_any(&mut received).unwrap();
        assert_eq!(number(&received), first as f64);
        let (received, second) = group.irecv_any(message(9)).unwrap().wait().unwrap();
        assert_eq!(number(&received), second as f64);
        assert_eq!(first + second, 3);
    }
);

on_ranks!(
    3,
    fn a_batch_of_messages_goes_round_whatever_their_order(group: &ProcessGroup) {
        let (rank, ranks) = (group.rank(), group.world_size());
        let previous = (rank + ranks - 1) % ranks;
        let mut pending = group
            .batch_isend_irecv(vec![
                P2pOp::Irecv { tensor: message(9), src: previous },
                P2pOp::Isend { tensor: message(rank), dst: (rank + 1) % ranks },
            ])
            .unwrap();
        let sent = pending.pop().unwrap();
        assert_eq!(number(&pending.pop().unwrap().wait().unwrap()), previous as f64);
        assert_eq!(number(&sent.wait().unwrap()), rank as f64);
        let to_itself = vec![P2pOp::Isend { tensor: message(9), dst: rank }];
        let error = group.batch_isend_irecv(to_itself).unwrap_err().to_string();
        assert!(error.starts_with(&format!("dst is rank {rank}, this rank itself")), "{error}");
    }
);

on_ranks!(
    2,
    fn a_message_that_does_not_come_in_time_is_an_error(group: &ProcessGroup) {
        group.barrier().unwrap();
        let done = group.new_group(&[0, 1]).unwrap().unwrap();
        if group.rank() == 0 {
            let limited = group.with_timeout(Duration::from_millis(300));
            let error = limited.recv(&mut message(9), 1).unwrap_err().to_string();
            assert!(error.contains("rank 1 runs"), "{error}");
        }
        done.barrier().unwrap();
    }
);
