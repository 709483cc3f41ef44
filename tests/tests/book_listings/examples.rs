//! The examples of the library, from all chapters.

use super::*;

const EXAMPLES: &str = "apex autocast averaged_gradient batch_norm_across_ranks batches_per_rank \
    broadcast_buffers bucket_order by_task failing_replica forgotten_epoch fully_shard grad_scaler \
    gradient_as_bucket_view gradient_buckets half_precision mean_of_gradients mean_of_means \
    minimal_distributed_data mnist_ddp mnist_single no_gradient_exchange printed_losses \
    same_weights_other_dropout shuffled_twice virtual_ranks wrong_world_size zero_redundancy";

#[test]
fn the_examples_print_what_the_book_shows() -> Result<()> {
    for name in EXAMPLES.split(' ') {
        let listing = source(format!("book/src/output/{name}.txt"))?;
        let shown = listing.lines().next().unwrap_or_default().trim_start_matches("$ ");
        assert!(shown.ends_with(&format!(" --example {name}")), "{name}.txt shows `{shown}`");
        let code = source(format!("core/examples/{name}.rs"))?;
        assert!(code.contains(&format!("//! {shown}\n")), "{name}.rs does not say `{shown}`");
        let is_training = name.starts_with("mnist") || name == "printed_losses";
        expect_replay(&format!("{name}.txt"), if is_training { TRAINED } else { EXACT })?;
    }
    Ok(())
}
