//! One rank fails for a reason of its own. The launcher names it with the reason, and so do the
//! other ranks, which only lose their connection to it.
//!
//! ```text
//! cargo launch -n 3 -- cargo run -rq -p tch-parallel --example failing_rank -- error
//! ```
//!
//! Other failures: `panic`, `memory` and `backward`.

use anyhow::{Result, bail};
use tch::{Kind, Tensor, nn, nn::VarStore};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup, record};

// ANCHOR: record
fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    record(train)
}
// ANCHOR_END: record

fn train() -> Result<()> {
    let failure = std::env::args().nth(1).unwrap_or_default();
    let group = ProcessGroup::from_env()?;
    let cpu = (Kind::Float, group.device());
    let vs = VarStore::new(group.device());
    let module = nn::linear(vs.root(), 4, 1, Default::default());
    let model = DistributedDataParallel::new(module, &vs, &group)?;
    for step in 0..10 {
        let mut loss = model.f_forward_t(&Tensor::ones([8, 4], cpu), true)?.sum(Kind::Float);
        if step == 5 && group.rank() == 1 {
            match failure.as_str() {
                "error" => bail!("no sample 6 in the data set"),
                "panic" => panic!("no sample 6 in the data set"),
                "memory" => loss = Tensor::f_ones([1 << 48], cpu)?,
                "backward" => loss = loss.detach(),
                other => {
                    bail!("the failure is {other:?}, but must be error, panic, memory or backward")
                }
            }
        }
        model.backward(&loss)?;
    }
    Ok(())
}
