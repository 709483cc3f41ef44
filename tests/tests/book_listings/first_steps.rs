//! Chapter "First steps". Its programs are the library's examples, and its reader has them in a crate of their own,
//! which `cargo xtask package` builds too.

use super::*;

cases! {
    fn the_mean_by_hand_moves_both_weights_alike() = on_two_ranks("mean_by_hand", "by_hand", EXACT);
    fn the_readers_program_trains_on_two_ranks() = on_two_ranks("readme", "ddp", TRAINED);
}

fn on_two_ranks(program: &str, listing: &str, tolerance: f64) -> Result<()> {
    let text = sorted(&printed(launch(2, &example(program, [])?)?)?);
    let shown = "$ launch -n 2 target/release/first-steps | sort\n".to_owned();
    expect_listing(&format!("first_steps_{listing}.txt"), &(shown + &text), tolerance)
}
