//! Running statistics in DistributedDataParallel: each rank computes its own, and rank 0's are copied to all. Their
//! course in a training is compared with Python in `ddp_hooks`.

use crate::prelude::*;

/// The sum of each rank's running mean; equal tensors have equal sums.
fn running_means(group: &ProcessGroup, vs: &VarStore) -> [f64; 2] {
    let sums = group.all_gather(&vs.variables()["norm.running_mean"].sum(Kind::Double)).unwrap();
    [0, 1].map(|rank| sums[rank].double_value(&[]))
}

#[run_by(on_ranks(2))]
fn the_module_itself_has_rank_0s_running_statistics_once_synchronised(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let net = nn::seq_t()
        .add(nn::batch_norm1d(vs.root() / "norm", 4, Default::default()))
        .add(nn::linear(vs.root() / "last", 4, 2, Default::default()));
    let model = DistributedDataParallel::new(net, &vs, group).unwrap();
    // A batch that differs from rank to rank, so that the statistics differ too.
    let batch = Tensor::arange(24, FLOAT_CPU).reshape([6, 4]) + group.rank() as f64;
    model.backward(&model.f_forward_t(&batch, true).unwrap().mean(Kind::Float)).unwrap();
    let [first, second] = running_means(group, &vs);
    assert_ne!(first, second);
    model.sync_buffers().unwrap();
    assert_eq!(running_means(group, &vs), [first; 2]);
}
