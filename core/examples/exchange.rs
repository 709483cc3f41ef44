//! What collectives cost between the ranks of one host, compared with copying the bytes.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example exchange
//! TCH_PARALLEL_SHARED_MEMORY=0 cargo launch -n 2 -- cargo run -rq -p tch-parallel --example exchange
//! ```

use anyhow::Result;
use report::exit;
use std::time::{Duration, Instant};
use tch::{Kind, Tensor};
use tch_parallel::distributed::{
    DeviceChoice, ProcessGroup, ProcessGroupOptions, ReduceOp, init_process_group,
};

/// The sizes of whole tensors: from a loss to the gradients of a layer of 17 million parameters.
const BYTES: [i64; 6] = [4, 64 << 10, 472 << 10, 4 << 20, 26 << 20, 64 << 20];
const TIME: Duration = Duration::from_millis(200);

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
    let group = init_process_group(options)?;
    let first = group.rank() == 0;
    if first {
        println!("{} ranks, {}", group.world_size(), group.transport());
        print!("{:>10} {:>14} {:>17}", "bytes", "all_reduce", "allocated for it");
        println!(" {:>14} {:>14} {:>10}", "reduce_scatter", "all_gather", "copy");
    }
    for bytes in BYTES {
        let mut ordinary = Tensor::zeros([bytes / 4], (Kind::Float, group.device()));
        let mut allocated = group.allocate_tensor(&[bytes / 4], Kind::Float)?;
        let _ = allocated.zero_();
        // The shortest tensor has one value for all ranks.
        let part = (bytes / 4 / group.world_size() as i64).max(1);
        let parts = group.allocate_tensor(&[part * group.world_size() as i64], Kind::Float)?;
        let mut own = parts.narrow(0, part * group.rank() as i64, part);
        let mut gathered = parts.shallow_clone();
        let mut other = ordinary.zeros_like();
        let figures = [
            median(&group, || Ok(group.all_reduce(&mut ordinary, ReduceOp::Sum)?))?,
            median(&group, || Ok(group.all_reduce(&mut allocated, ReduceOp::Sum)?))?,
            median(&group, || Ok(group.reduce_scatter_tensor(&mut own, &parts, ReduceOp::Sum)?))?,
            median(&group, || Ok(group.all_gather_into_tensor(&mut gathered, &own)?))?,
            median(&group, || Ok(other.f_copy_(&allocated)?))?,
        ];
        if first {
            let [ordinary, allocated, reduced, gathered, copy] =
                figures.map(|time| time.as_secs_f64() * 1e3);
            print!("{bytes:>10} {ordinary:>11.3} ms {allocated:>14.3} ms");
            println!(" {reduced:>11.3} ms {gathered:>11.3} ms {copy:>7.3} ms");
        }
    }
    Ok(())
}

/// The median time of `work`, which all ranks begin together.
fn median(group: &ProcessGroup, mut work: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut times = Vec::new();
    let start = Instant::now();
    loop {
        // Rank 0's clock decides for all.
        let mut go_on = Tensor::from(times.len() < 10 || start.elapsed() < TIME).to_kind(Kind::Int);
        group.broadcast(&mut go_on, 0)?;
        group.barrier()?;
        if go_on.int64_value(&[]) == 0 {
            times.sort_unstable();
            return Ok(times[times.len() / 2]);
        }
        let begin = Instant::now();
        work()?;
        times.push(begin.elapsed());
    }
}
