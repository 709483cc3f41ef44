//! What 16 bits can hold, and what they cannot.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example half_precision
//! ```

use tch::{Device, Kind, Tensor};

fn main() {
    // ANCHOR: numbers
    let numbers = [1.001, 1.01, 65_504.0, 100_000.0, 1e-5, 1e-8];
    let in_32_bits = Tensor::from_slice(&numbers).to_kind(Kind::Float);
    let back = |kind| in_32_bits.to_kind(kind).to_kind(Kind::Double);
    let (half, bfloat16) = (back(Kind::Half), back(Kind::BFloat16));
    // ANCHOR_END: numbers
    println!("{:>9}  {:>10}  {:>10}", "32 bits", "fp16", "bf16");
    for (index, number) in (0..).zip(numbers) {
        let [half, bfloat16] = [&half, &bfloat16].map(|kind| kind.double_value(&[index]));
        println!("{number:>9e}  {half:>10.3e}  {bfloat16:>10.3e}");
    }

    // ANCHOR: sum
    let half = |value| Tensor::full([2], value, (Kind::Half, Device::Cpu));
    let (large, small) = (half(40_000.0), half(1e-4));
    let sum = |values: &Tensor| values.sum(Kind::Half).double_value(&[]);
    // ANCHOR_END: sum
    println!("in fp16, 40000 + 40000 = {}, 1e-4 + 1e-4 = {:.3e}", sum(&large), sum(&small));
}
