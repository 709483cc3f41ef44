//! Mixed precision on several ranks.

use crate::prelude::*;

#[run_by(on_ranks(2))]
fn an_overflow_on_one_rank_skips_the_step_on_all(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let net = nn::seq_t().add(nn::linear(vs.root() / "fc", 4, 2, Default::default()));
    let model = DistributedDataParallel::new(net, &vs, group).unwrap();
    let mut optimizer = Sgd::new(&vs, SgdOptions::default()).unwrap();
    // Small enough that no weights make 16-bit gradients overflow.
    let options = GradScalerOptions { init_scale: 1024.0, ..Default::default() };
    let mut scaler = GradScaler::new(options).unwrap();
    let mut iteration = |factor: f64| {
        let xs = Tensor::ones([3, 4], FLOAT_CPU);
        let loss = autocast(Device::Cpu, Some(Kind::Half), || {
            model.f_forward_t(&xs, true).unwrap().square().mean(Kind::Float) * factor
        });
        optimizer.zero_grad().unwrap();
        model.backward(&scaler.scale(&loss.unwrap()).unwrap()).unwrap();
        let made = scaler.step(&mut optimizer).unwrap();
        scaler.update().unwrap();
        (made, scaler.get_scale().unwrap())
    };
    assert_eq!(iteration(1.0), (true, 1024.0));
    // Before the exchange only rank 1's gradients are not finite.
    let factor = if group.rank() == 1 { f64::INFINITY } else { 1.0 };
    assert_eq!(iteration(factor), (false, 512.0));
    assert_eq!(iteration(1.0), (true, 512.0));
}
