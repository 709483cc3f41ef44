//! A token that the table does not have, on one device of three.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example failing_replica
//! ```

use anyhow::Result;
use tch::{Tensor, nn};
use tch_parallel::{Devices, data_parallel::DataParallel};

fn main() -> Result<()> {
    // ANCHOR: fails
    let devices = Devices::cpu(3)?;
    let vs = nn::VarStore::new(devices.first().into());
    // A table of ten rows, for the tokens 0 to 9.
    let table = |p: &nn::Path<'_>| nn::embedding(p, 10, 4, Default::default());
    let model = DataParallel::new(table, &vs, &devices)?;
    for tokens in [[1i64, 2, 3, 10, 5, 6], [1, 2, 3, 4, 5, 6]] {
        match model.f_forward_t(&Tensor::from_slice(&tokens), false) {
            Ok(outputs) => println!("{tokens:?}: an output of {:?}", outputs.size()),
            Err(error) => println!("{tokens:?}: {error}"),
        }
    }
    // ANCHOR_END: fails
    Ok(())
}
