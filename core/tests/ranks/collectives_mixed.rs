//! Ranks that run Rust and ranks that run Python understand each other in every collective. Each
//! side compares what it gets with the same numbers; `tests/python/collectives.py` is the other.

use crate::{collectives::all_reduced, prelude::*};

fn own(rank: usize) -> Tensor {
    Tensor::from_slice(&[1.0, 10.0]) * (rank as f64 + 1.0)
}

fn empty(rows: i64) -> Tensor {
    Tensor::empty([rows], DOUBLE_CPU)
}

#[run_by(common::beside_python("collectives", 1))]
fn a_rust_rank_and_a_python_rank_understand_each_other_in_every_collective() {
    let group = &common::join();
    assert_eq!(values(&all_reduced(group, own(0), ReduceOp::Sum)), [3.0, 30.0]);
    assert_eq!(all_reduced(group, Tensor::from(6i64), ReduceOp::Band).int64_value(&[]), 2);
    let complex = all_reduced(group, Tensor::complex(&own(0), &-own(0)), ReduceOp::Sum);
    assert_eq!(values(&complex.view_as_real()), [3.0, -3.0, 30.0, -30.0]);

    let mut tensor = own(0);
    group.broadcast(&mut tensor, 1).unwrap();
    assert_eq!(values(&tensor), [2.0, 20.0]);

    group.reduce(&mut own(0), 1, ReduceOp::Sum).unwrap();
    let gathered = group.all_gather(&Tensor::stack(&[own(0), own(5)], 1).select(1, 0)).unwrap();
    assert_eq!(values(&Tensor::stack(&gathered, 0)), [1.0, 10.0, 2.0, 20.0]);

    let mut whole = empty(4);
    group.all_gather_into_tensor(&mut whole, &own(0)).unwrap();
    assert_eq!(values(&whole), [1.0, 10.0, 2.0, 20.0]);

    assert!(group.gather(&own(0), 1).unwrap().is_none());
    let mut tensor = empty(2);
    group.scatter(&mut tensor, None, 1).unwrap();
    assert_eq!(values(&tensor), [1.0, 10.0]);

    let parts = own(0).split(1, 0);
    assert_eq!(values(&group.reduce_scatter(&parts, ReduceOp::Sum).unwrap()), [3.0]);
    let mut output = empty(1);
    group.reduce_scatter_tensor(&mut output, &own(0), ReduceOp::Sum).unwrap();
    assert_eq!(values(&output), [3.0]);

    let mut outputs = [empty(1), empty(1)];
    group.all_to_all(&mut outputs, &parts).unwrap();
    assert_eq!(values(&Tensor::cat(&outputs, 0)), [1.0, 2.0]);

    let mut output = empty(3);
    group.all_to_all_single(&mut output, &Tensor::arange(2, DOUBLE_CPU), &[1, 2], &[1, 1]).unwrap();
    assert_eq!(values(&output), [0.0, 10.0, 11.0]);

    group.barrier().unwrap();
    let mut tensor = empty(2);
    assert_eq!(group.with_tag(7).recv_any(&mut tensor).unwrap(), 1);
    assert_eq!(values(&tensor), [2.0, 20.0]);
    group.with_tag(8).send(&own(0), 1).unwrap();

    let (receive, send) = (P2pOp::irecv(empty(2), 1), P2pOp::isend(own(0), 1));
    let pending = group.batch_isend_irecv(vec![receive, send]).unwrap().into_iter();
    let ended: Vec<_> = pending.map(|pending| pending.wait().unwrap()).collect();
    assert_eq!(values(&ended[0]), [2.0, 20.0]);

    // The loss of rank r multiplies what it gets by r + 1.
    let gradient = |collective: &dyn Fn(&Tensor) -> Result<Vec<Tensor>>| {
        let own = own(0).set_requires_grad(true);
        collective(&own).unwrap().iter().map(|it| it.sum(Kind::Double)).sum::<Tensor>().backward();
        values(&own.grad())
    };
    let halves = |own: &Tensor| own.split(1, 0);
    let sum = ReduceOp::Sum;
    let all_reduce = gradient(&|own| Ok(vec![functional::all_reduce(own, sum, group)?]));
    let broadcast = gradient(&|own| Ok(vec![functional::broadcast(own, 1, group)?]));
    let all_gather = gradient(&|own| functional::all_gather(own, group));
    let scatter = gradient(&|own| Ok(vec![functional::reduce_scatter(&halves(own), sum, group)?]));
    let all_to_all = gradient(&|own| functional::all_to_all(&halves(own), group));
    let single =
        gradient(&|own| Ok(vec![functional::all_to_all_single(own, &[2, 0], &[2, 0], group)?]));
    assert_eq!([all_reduce, broadcast, all_gather], [[3.0, 3.0], [0.0, 0.0], [3.0, 3.0]]);
    assert_eq!([scatter, all_to_all, single], [[1.0, 2.0], [1.0, 2.0], [1.0, 1.0]]);
    let reduce = gradient(&|own| Ok(vec![functional::reduce(own, 1, sum, group)?]));
    let gather = gradient(&|own| functional::gather(own, 1, group));
    let scatter = gradient(&|own| Ok(vec![functional::scatter(&halves(own), 1, group)?]));
    assert_eq!([reduce, gather, scatter], [[2.0, 2.0], [2.0, 2.0], [0.0, 0.0]]);
}
