//! The loss to minimise, and which answers are right.

use anyhow::Result;
use tch::{Kind, Reduction, Tensor};
use tch_parallel::data_parallel::Mean;

/// A target that is ignored.
const IGNORE_INDEX: i64 = 0;

/// codertimo's loss of a batch: `nll(next, is_next) + nll(mlm, labels)`, a scalar.
///
/// `output` is the model's, `target` that of a `BertBatch`. One `nn.NLLLoss(ignore_index=0)` serves both terms. So
/// pairs whose second sentence is *not* the next, `is_next = 0`, carry no loss, and nothing keeps the model from always
/// saying yes. This is kept from codertimo (his issues #32, #49 and #98 ask why the accuracy stays at 50 %).
///
/// A batch without a pair that counts, or without a word to guess, has a mean over nothing: NaN.
// ANCHOR: loss
pub fn bert_loss(output: &(Tensor, Tensor), target: &(Tensor, Tensor)) -> Tensor {
    let ((next, mlm), (is_next, labels)) = (output, target);
    nll_loss(next, is_next) + nll_loss(&mlm.transpose(1, 2), labels)
}
// ANCHOR_END: loss

/// The two terms of [`bert_loss`], each with the number of targets that it averages.
///
/// The mean of the devices' losses is not the loss of the whole batch: one device may have three
/// words to guess and another nine. With these numbers a parallel criterion weights them.
// ANCHOR: means
pub fn bert_means(output: &(Tensor, Tensor), target: &(Tensor, Tensor)) -> Vec<Mean> {
    let ((next, mlm), (is_next, labels)) = (output, target);
    let counting = |target: &Tensor| target.ne(IGNORE_INDEX).sum(Kind::Int64);
    vec![
        Mean { value: nll_loss(next, is_next), count: counting(is_next) },
        Mean { value: nll_loss(&mlm.transpose(1, 2), labels), count: counting(labels) },
    ]
}
// ANCHOR_END: means

/// `nn.NLLLoss(ignore_index=0)`: log-probabilities `[batch, classes, ..]`, classes `[batch, ..]`.
fn nll_loss(log_probabilities: &Tensor, target: &Tensor) -> Tensor {
    log_probabilities.nll_loss_nd::<Tensor>(target, None, Reduction::Mean, IGNORE_INDEX)
}

/// The percentage of pairs that were judged correctly, a number on the device of `next`. `next` and
/// `is_next` as in [`bert_loss`], on any device.
pub fn accuracy(next: &Tensor, is_next: &Tensor) -> Result<Tensor> {
    let is_next = is_next.f_to_device(next.device())?;
    let is_right = next.f_argmax(-1, false)?.f_eq_tensor(&is_next)?;
    Ok((is_right.f_to_kind(Kind::Double)? * 100.0).f_mean(Kind::Double)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn a_batch_in_which_nothing_counts_has_no_loss() {
        let output = (Tensor::zeros([2, 2], FLOAT_CPU), Tensor::zeros([2, 2, 3], FLOAT_CPU));
        let loss = |is_next: [i64; 2], labels: [i64; 4]| {
            let target = (Tensor::from_slice(&is_next), Tensor::from_slice(&labels).view([2, 2]));
            bert_loss(&output, &target).double_value(&[])
        };
        assert!(loss([0, 1], [0, 1, 2, 0]).is_finite());
        assert!(loss([0, 0], [0, 1, 2, 0]).is_nan());
        assert!(loss([0, 1], [0; 4]).is_nan());
    }

    #[test]
    fn the_likelier_answer_counts() {
        let next = Tensor::from_slice(&[0.9f32, 0.1, 0.2, 0.8]).view([2, 2]);
        let correct = |is_next: [i64; 2]| {
            accuracy(&next, &Tensor::from_slice(&is_next)).unwrap().double_value(&[])
        };
        assert_eq!([correct([0, 1]), correct([1, 1]), correct([1, 0])], [100.0, 50.0, 0.0]);
    }
}
