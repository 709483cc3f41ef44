//! How much more memory the device that gathers the outputs needs than the others.
//!
//! BERT's output is a log-probability for every word of the vocabulary at every position: by far the largest tensor of
//! a step, and several others have its size. A *share* is what one device computes of it, 1/k of the whole on k
//! devices. These live at the fullest moments of a step, in shares:
//!
//! | on the device that gathers, while the loss's backward pass runs | shares |
//! |---|---|
//! | its own output, which `log_softmax` keeps for its backward pass | 1 |
//! | the gathered output, which the training loop still holds | k |
//! | a copy of it: `nll_loss` gets it transposed, makes it contiguous and keeps that | k |
//! | the gradient with respect to that copy | k |
//! | **in all** | **3 k + 1** |
//!
//! | on any other device, while `log_softmax`'s backward pass runs | shares |
//! |---|---|
//! | its own output | 1 |
//! | the gradient of it that came from the loss, transposed as it was there | 1 |
//! | a copy of that: `log_softmax` needs it contiguous | 1 |
//! | the gradient with respect to its input | 1 |
//! | **in all** | **4** |
//!
//! The gathering device gets to that second moment as well, with 2 k + 3 shares: the gathered output and the whole
//! gradient are still there. That is never more than 3 k + 1 where there are two devices or more.
//!
//! So the surplus is 3 k - 3 shares, whatever the activations, which are the same on every device. Where each device
//! computes its own loss, nothing is gathered: then all have 4 shares, as every rank of DistributedDataParallel has.
//!
//! The formula leaves out Adam's state, which only the device with the trained model holds; the batch, which the first
//! device holds whole; and a few single numbers. It assumes outputs that are larger than the model, see [`holds`].

/// Bytes of a number in the output, an f32.
const NUMBER: usize = 4;

/// How many numbers the output has for each of `batch_size` pairs.
pub fn output_bytes(batch_size: usize, seq_len: usize, vocab_size: usize) -> usize {
    batch_size * seq_len * vocab_size * NUMBER
}

/// The bytes by which the peak of the gathering device exceeds the others'; `output` is what [`output_bytes`] gives.
pub fn surplus(output: usize, devices: usize) -> usize {
    3 * (devices - 1) * output / devices
}

/// Whether the devices are fullest when the formula says, as they are where the `gradients` of all
/// parameters take less than two shares.
///
/// Else it may be at the end of the forward pass, when those of the last step are still there beside
/// a share or two, or in the backward pass of the output layer, which brings the first of them.
pub fn holds(output: usize, devices: usize, gradients: usize) -> bool {
    gradients < 2 * output / devices
}

#[cfg(test)]
mod tests {
    use super::super::TEXT;
    use super::*;

    #[test]
    fn the_surplus_is_one_and_a_half_outputs_on_two_devices_and_two_and_a_quarter_on_four() {
        let output = output_bytes(32, 64, 8192);
        assert_eq!(output, 64 << 20);
        assert_eq!(surplus(output, 2), 96 << 20);
        assert_eq!(surplus(output, 4), 144 << 20);
    }

    #[test]
    fn the_articles_6_gib_belong_to_a_vocabulary_of_about_22_000() {
        let words = (6 << 30) * 4 / (3 * 3) / output_bytes(200, 163, 1);
        assert_eq!(words, 21_957);
        assert!(surplus(output_bytes(200, 163, words), 4).abs_diff(6 << 30) < 1 << 20);
        assert!(TEXT.contains("it had about 22,000 words"));
    }
}
