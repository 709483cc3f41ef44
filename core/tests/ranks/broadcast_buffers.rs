//! The running statistics of a model in DistributedDataParallel: each rank computes its own, and
//! rank 0's are copied to all.

use crate::prelude::*;

#[derive(Debug)]
struct Normalised(nn::BatchNorm, nn::Linear);

impl ModuleT for Normalised {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.1.forward(&self.0.forward_t(xs, train))
    }
}

/// A batch that differs from rank to rank, so that the statistics differ too.
fn batch(group: &ProcessGroup) -> Tensor {
    Tensor::arange(24, FLOAT_CPU).reshape([6, 4]) + group.rank() as f64
}

/// The sum of each rank's tensor; equal tensors have equal sums.
fn of_all_ranks(group: &ProcessGroup, tensor: &Tensor) -> Vec<f64> {
    let gathered = group.all_gather(&tensor.detach().sum(Kind::Double)).unwrap();
    gathered.iter().map(|sum| f64::try_from(sum).unwrap()).collect()
}

/// The running mean on each of the two ranks at the start of the second forward pass.
fn running_means(group: &ProcessGroup, broadcast_buffers: bool) -> Vec<f64> {
    let vs = VarStore::new(Device::Cpu);
    let norm = nn::batch_norm1d(&vs.root() / "norm", 4, Default::default());
    let net = Normalised(norm, nn::linear(&vs.root() / "last", 4, 2, Default::default()));
    let options = DdpOptions { broadcast_buffers, ..Default::default() };
    let model = DistributedDataParallel::with_options(net, &vs, group, options).unwrap();
    let xs = batch(group);
    model.backward(&model.f_forward_t(&xs, true).unwrap().mean(Kind::Float)).unwrap();
    let seen = model.forward(|net| (net.0.running_mean.copy(), net.forward_t(&xs, false))).unwrap();
    of_all_ranks(group, &seen.0)
}

#[test]
fn running_statistics_are_rank_0s_before_each_forward_pass_unless_told_otherwise() {
    on_ranks(2, |group| {
        let [first, second] = <[f64; 2]>::try_from(running_means(group, true)).unwrap();
        assert_eq!(first, second);
        let [first, second] = <[f64; 2]>::try_from(running_means(group, false)).unwrap();
        assert_ne!(first, second);
    });
}

#[test]
fn the_module_itself_has_rank_0s_running_statistics_once_they_are_synchronised() {
    on_ranks(2, |group| {
        let vs = VarStore::new(Device::Cpu);
        let norm = nn::batch_norm1d(&vs.root() / "norm", 4, Default::default());
        let net = Normalised(norm, nn::linear(&vs.root() / "last", 4, 2, Default::default()));
        let model = DistributedDataParallel::new(net, &vs, group).unwrap();
        let _ = model.f_forward_t(&batch(group), true).unwrap();
        let running_mean = &model.module().0.running_mean;
        let own = of_all_ranks(group, running_mean);
        assert_ne!(own[0], own[1]);
        model.sync_buffers().unwrap();
        assert_eq!(of_all_ranks(group, running_mean), [own[0]; 2]);
    });
}
