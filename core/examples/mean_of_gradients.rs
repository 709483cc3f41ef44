//! Why the data can be divided: the mean of the parts' gradients is the gradient of the whole.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example mean_of_gradients
//! ```

use tch::{Kind, Tensor};

fn main() {
    // ANCHOR: gradients
    // The model is y = w·x with w = 0, and the points lie on the line y = 3x.
    let gradient = |points: &[f32]| -> f64 {
        let w = Tensor::from(0f32).set_requires_grad(true);
        let x = Tensor::from_slice(points);
        let loss = (&w * &x - &x * 3.0).square().mean(Kind::Float);
        loss.backward();
        w.grad().double_value(&[])
    };
    let whole = gradient(&[0.0, 1.0, 2.0, 3.0]);
    let (a, b) = (gradient(&[0.0, 2.0]), gradient(&[1.0, 3.0]));
    println!("two and two:   {a} and {b}, mean {}; the whole batch: {whole}", (a + b) / 2.0);

    let (a, b) = (gradient(&[0.0, 1.0, 2.0]), gradient(&[3.0]));
    println!("three and one: {a} and {b}, mean {}; the whole batch: {whole}", (a + b) / 2.0);
    println!("               weighted by their points: {}", (3.0 * a + b) / 4.0);
    // ANCHOR_END: gradients
}
