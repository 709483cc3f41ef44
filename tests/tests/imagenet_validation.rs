//! A validation counts every image once, whatever the number of ranks.

use crate::prelude::*;
use tests::imagenet::{OUTPUTS, job_with_images};

/// Loss and accuracy of an untrained network, as reported by each rank.
fn validated(job: &Job, ranks: usize, flags: &[&str]) -> Result<Vec<[f64; 2]>> {
    let network = ["--evaluate", "--arch", "pyramidnet8_a6", "--seed", "3"];
    let program = ddp_imagenet([&network[..], &OUTPUTS, flags].concat())?;
    job.run(launch(ranks, &program)?)?.expect_success()?;
    let of_rank = |rank| {
        let found = events(job.directory(), rank, "validation", |event| {
            Some([event["val_loss"].as_f64()?, event["accuracy"].as_f64()?])
        })?;
        found.first().copied().with_context(|| format!("rank {rank} has not validated"))
    };
    (0..ranks).map(of_rank).collect()
}

/// Losses may differ by rounding: differently divided batches are added up in another order, and
/// the loss of a batch is a 32-bit float.
fn expect_equal_but_for_rounding(job: &Job, worlds: &[usize], flags: &[&str]) -> Result<()> {
    let results = worlds.iter().map(|ranks| validated(job, *ranks, flags));
    let results = results.collect::<Result<Vec<_>>>()?.concat();
    for [loss, accuracy] in &results {
        assert!((loss - results[0][0]).abs() < 1e-6, "{results:?}");
        assert!((accuracy - results[0][1]).abs() < 1e-12, "{results:?}");
    }
    Ok(())
}

cases! {
    /// 2,000 digits: two of three ranks have one more, and the last batches differ as well.
    fn digits_that_ranks_share_out_unevenly_come_to_the_same() =
        expect_equal_but_for_rounding(&Job::new()?, &[1, 2, 3], &["--dataset", "mnist", "--batch-size", "300"]);
    fn fewer_images_than_ranks_are_counted_once() =
        expect_equal_but_for_rounding(&job_with_images(1)?, &[1, 3], &["images", "--image-size", "32"]);
}
