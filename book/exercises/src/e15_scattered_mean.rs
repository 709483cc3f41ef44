//! A mean over uneven chunks (chapter: data-parallel.md)
//!
//! DataParallel divides a batch among devices with `chunk`, and the last chunk may be smaller. `loss` returns the mean
//! loss of some rows. Call it once for each chunk, and return the mean loss of the whole batch.

use crate::prelude::*;
use std::cell::RefCell;

pub fn scattered_mean(batch: &Tensor, devices: i64, loss: &dyn Fn(&Tensor) -> Tensor) -> Tensor {
    todo!("weight each chunk's loss by its number of rows")
}

pub fn check(
    group: &ProcessGroup,
    scattered_mean: impl Fn(&Tensor, i64, &dyn Fn(&Tensor) -> Tensor) -> Tensor,
) -> Result<()> {
    for devices in [3, 4] {
        let sizes = RefCell::new(Vec::new());
        let loss = |rows: &Tensor| {
            sizes.borrow_mut().push(rows.size()[0]);
            rows.square().mean(Kind::Float)
        };
        let batch = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 10.0]);
        let mean = scattered_mean(&batch, devices, &loss);
        agree_equal(group, "the list of the chunks' sizes", sizes.into_inner(), vec![2, 2, 1])?;
        agree(group, "the mean", &mean, &26.0.into())?;
    }
    Ok(())
}
