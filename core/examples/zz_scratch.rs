//! scratch
use anyhow::Result;
use std::time::Duration;
use tch::{Device, Kind, Tensor};
use tch_parallel::distributed::{ProcessGroupOptions, ReduceOp, init_process_group};
fn main() -> std::process::ExitCode { tch_parallel::report::exit_code(run()) }
fn run() -> Result<()> {
    let timeout = Duration::from_secs(3);
    let group = init_process_group(ProcessGroupOptions { timeout, ..Default::default() })?;
    let n: i64 = std::env::args().nth(1).unwrap().parse()?;
    let mut t = if group.rank() == 0 { Tensor::ones([2], (Kind::Double, Device::Cpu)) } else { Tensor::ones([n], (Kind::Float, Device::Cpu)) };
    group.all_reduce(&mut t, ReduceOp::Sum)?;
    println!("rank {} got {:?}", group.rank(), Vec::<f64>::try_from(t.to_kind(Kind::Double).view([-1]).narrow(0,0,2))?);
    Ok(())
}
