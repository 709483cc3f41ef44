//! The examples of the library, from all chapters.

use anyhow::Result;
use tests::programs::{example, launch, source};

use super::listing::{EXACT, TRAINED, expect_listing};
use super::{printed, run_by_rank};

/// The example's name, its number of ranks (0: no launcher), and whether ranks other than 0 print.
const EXAMPLES: [(&str, usize, bool); 26] = [
    ("apex", 2, false),
    ("autocast", 0, false),
    ("averaged_gradient", 2, true),
    ("batch_norm_across_ranks", 2, true),
    ("batches_per_rank", 0, false),
    ("broadcast_buffers", 2, false),
    ("bucket_order", 2, false),
    ("by_task", 2, false),
    ("failing_replica", 0, false),
    ("forgotten_epoch", 0, false),
    ("fully_shard", 2, false),
    ("grad_scaler", 2, true),
    ("gradient_as_bucket_view", 2, false),
    ("gradient_buckets", 2, false),
    ("half_precision", 0, false),
    ("mean_of_gradients", 0, false),
    ("mean_of_means", 5, false),
    ("minimal_distributed_data", 2, true),
    ("mnist_ddp", 2, true),
    ("mnist_single", 0, false),
    ("no_gradient_exchange", 2, false),
    ("printed_losses", 0, false),
    ("same_weights_other_dropout", 2, true),
    ("shuffled_twice", 2, false),
    ("wrong_world_size", 2, false),
    ("zero_redundancy", 2, true),
];

#[test]
fn the_examples_print_what_the_book_shows() -> Result<()> {
    for (name, ranks, all_print) in EXAMPLES {
        let run = format!("cargo run -rq -p tch-parallel --example {name}");
        let (shown, printed) = if ranks == 0 {
            (run, printed(example(name, [])?)?)
        } else if all_print {
            let shown = format!("cargo launch -n {ranks} --tee 1 -- {run}");
            (shown, run_by_rank(ranks, &example(name, [])?)?)
        } else {
            let command = launch(ranks, &example(name, [])?)?;
            let shown = format!("cargo launch -n {ranks} -- {run}");
            (shown, printed(command)?)
        };
        let code = source(format!("core/examples/{name}.rs"))?;
        assert!(code.contains(&format!("//! {shown}\n")), "{name}.rs does not say `{shown}`");
        let is_training = name.starts_with("mnist") || name == "printed_losses";
        let tolerance = if is_training { TRAINED } else { EXACT };
        expect_listing(&format!("{name}.txt"), &format!("$ {shown}\n{printed}"), tolerance)?;
    }
    Ok(())
}
