//! All methods side by side, with and without a slow worker.
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | [`CompareArgs`]: the flags |
//! | `runs` | a training in processes of its own, and what its metrics say |
//! | `table` | what each method did in a second, and what it learnt |
//! | `charts` | the same as SVG files |

mod args;
mod charts;
mod runs;
mod table;

use anyhow::{Result, ensure};
use runs::{METHODS, Runs};
use tch_parallel::distributed::Env;

pub use args::CompareArgs;

/// Trains with every method, first with equal workers and then with a slow one, and prints what
/// came of it.
pub fn compare(args: &CompareArgs) -> Result<()> {
    ensure!(
        Env::read()?.is_none(),
        "a launcher has started this process as a rank, but compare starts all ranks by itself: \
         run it without a launcher"
    );
    let runs = Runs::new(args)?;
    if let Some(directory) = &args.plot {
        charts::check_destination(directory)?;
    }
    let all =
        |slow| METHODS.iter().map(|method| runs.run(method, slow)).collect::<Result<Vec<_>>>();
    let (equal, slow) = (all(false)?, all(true)?);
    println!("{} equal workers, {} ms a gradient\n", args.workers, args.step_time);
    print!("{}", table::table_of(&equal));
    println!("\none of the {} workers {} times slower\n", args.workers, args.slowdown);
    print!("{}", table::table_of(&slow));
    if let Some(directory) = &args.plot {
        charts::save(directory, &equal, &slow)?;
    }
    Ok(())
}
