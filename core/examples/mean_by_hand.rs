//! Data-parallel training by hand: the mean of the ranks' gradients, with `all_reduce`.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example mean_by_hand
//! ```

// ANCHOR: program
use tch::{Kind, Tensor};
use tch_parallel::distributed::{ProcessGroup, ReduceOp};

fn main() -> Result<(), tch_parallel::Error> {
    let group = ProcessGroup::from_env()?;
    let rank = group.rank();
    // Four points on the line y = 3x, two for each rank: x is 0 and 2, or 1 and 3.
    let x = Tensor::from_slice(&[rank as f32, rank as f32 + 2.0]);
    let mut weight = Tensor::from(0f32).set_requires_grad(true);

    for step in 0..3 {
        weight.zero_grad();
        let loss = (&weight * &x - &x * 3.0).square().mean(Kind::Float);
        loss.backward();
        let mut gradient = weight.grad().copy();
        let own = gradient.double_value(&[]);
        group.all_reduce(&mut gradient, ReduceOp::Sum)?; // now the sum over the ranks
        let mean = gradient.double_value(&[]) / group.world_size() as f64;
        tch::no_grad(|| weight -= 0.1 * mean);
        let weight = weight.double_value(&[]);
        println!("rank {rank}, step {step}: gradient {own:.2}, mean {mean:.2}, weight {weight:.3}");
    }
    Ok(())
}
// ANCHOR_END: program
