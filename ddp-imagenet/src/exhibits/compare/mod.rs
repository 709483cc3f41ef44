//! The article's comparison: PyramidNet trained with every method in turn, and what each of them needs.
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | [`CompareArgs`]: the flags of the comparison |
//! | `runs` | one training in processes of its own, and what it measured |
//! | `words` | time, memory and utilisation of each device as a table, `table.jinja`, and in words beside the article's numbers, `explain.jinja` |
//! | `charts` | the same as SVG files |

mod args;
mod charts;
mod runs;
mod words;

use super::train_cifar::{Method, OptimizerKind};
use anyhow::{Result, ensure};
use charts::CHARTS;
use exhibit_kit::{comparison::Comparison, plot, template::paragraphs};
use report::print;
use tch_parallel::data::Dataset;

pub use args::CompareArgs;

pub fn compare(args: &CompareArgs) -> Result<()> {
    let comparison = Comparison::new(args.timeout)?;
    let needed = args.data.batch_size.max(args.images(Method::Single)?);
    // The number of images is the same with every seed.
    let images = args.data.load(args.arch, 0)?.0.len();
    // Fewer do not tell how long a batch takes.
    ensure!(
        images >= 3 * needed,
        "the data set has {images} images, which is less than three batches of {needed}; a smaller \
         --batch-size helps"
    );
    args.plot.check(&CHARTS.map(|(file, _)| file))?;
    let run = |method, optimizer| runs::train(args, &comparison, method, optimizer);
    // In the article's order. DataParallel comes with Adam as well: that is what the companion
    // repository runs there, where the article speaks of SGD (S4.47).
    let measured = [
        run(Method::Single, OptimizerKind::Sgd)?,
        run(Method::DataParallel, OptimizerKind::Sgd)?,
        run(Method::DataParallel, OptimizerKind::Adam)?,
        run(Method::Ddp, OptimizerKind::Sgd)?,
        run(Method::Apex, OptimizerKind::Sgd)?,
    ];
    print!("{}", words::tables_of(&measured)?);
    print!("\n{}", paragraphs(&words::explain(&measured)?));
    for (file, draw) in CHARTS {
        args.plot.save(file, || plot::bars(&draw(&measured)))?;
    }
    Ok(())
}
