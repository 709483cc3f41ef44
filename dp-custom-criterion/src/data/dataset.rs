//! Pairs with some words masked.

use super::{Corpus, Vocab, random::PythonRandom};
use tch::Tensor;
use tch_parallel::{Result, data::Dataset};

/// The model's input, `(tokens, segments)`, and its target, `(is_next, labels)`.
///
/// All are integers. Tokens, segments and labels are `[batch, seq_len]`; segments are 1 for the
/// first sentence, 2 for the second and 0 for padding; labels are 0 where there is nothing to
/// guess. `is_next` is `[batch]`: 1 if the second sentence really follows the first, else 0.
pub type BertBatch = ((Tensor, Tensor), (Tensor, Tensor));

/// The share of words to guess.
const TO_GUESS: f64 = 0.15;
/// The share of these that is masked, …
const MASKED: f64 = 0.8;
/// … and that is masked or replaced by a random token. The others stay as they are.
const MASKED_OR_REPLACED: f64 = 0.9;

/// codertimo's `BERTDataset`: `[CLS] first sentence [SEP] second sentence [SEP]`, where the second
/// sentence is one of another line half of the time, and some words are to be guessed.
///
/// Every epoch chooses anew. An item depends only on the seed, the epoch and the index, so it is the same for any
/// number of workers and ranks. (codertimo draws from the global generator of each worker process.)
pub struct BertDataset {
    pairs: Vec<[Vec<i64>; 2]>,
    /// Replaced tokens are drawn from as many.
    vocab_size: usize,
    seq_len: usize,
    seed: u64,
}

impl BertDataset {
    /// Pairs are truncated or padded to `seq_len` tokens.
    pub fn new(corpus: &Corpus, vocab: &Vocab, seq_len: usize, seed: u64) -> Self {
        let tokens = |words: &Vec<String>| words.iter().map(|word| vocab.token(word)).collect();
        let pairs = corpus.pairs.iter().map(|pair| pair.each_ref().map(tokens)).collect();
        Self { pairs, vocab_size: vocab.len(), seq_len, seed }
    }

    /// Whether the second sentence is the next one, and for each position token, segment and label.
    fn item(&self, index: usize, epoch: u64) -> (i64, Vec<[i64; 3]>) {
        let key = [index as u64, epoch, self.seed];
        let mut random =
            PythonRandom::new(&key.map(|part| [part as u32, (part >> 32) as u32]).concat());

        let [first, next] = &self.pairs[index];
        let is_next = random.random() > 0.5;
        let second =
            if is_next { next } else { &self.pairs[random.randrange(self.pairs.len())][1] };

        let mut positions = vec![[Vocab::SOS, 1, Vocab::PAD]];
        for (sentence, segment) in [(first, 1), (second, 2)] {
            positions.extend(sentence.iter().map(|&token| {
                let (shown, label) = self.mask(token, &mut random);
                [shown, segment, label]
            }));
            positions.push([Vocab::EOS, segment, Vocab::PAD]);
        }
        positions.resize(self.seq_len, [Vocab::PAD; 3]);
        (i64::from(is_next), positions)
    }

    /// The token that the model sees, and the one to guess there.
    fn mask(&self, token: i64, random: &mut PythonRandom) -> (i64, i64) {
        let drawn = random.random();
        if drawn >= TO_GUESS {
            return (token, Vocab::PAD);
        }
        // One number decides both, as in codertimo's program.
        let shown = match drawn / TO_GUESS {
            share if share < MASKED => Vocab::MASK,
            share if share < MASKED_OR_REPLACED => random.randrange(self.vocab_size) as i64,
            _ => token,
        };
        (shown, token)
    }
}

impl Dataset for BertDataset {
    type Batch = BertBatch;

    fn len(&self) -> usize {
        self.pairs.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<BertBatch> {
        let items = indices.iter().map(|&index| self.item(index, epoch));
        let (is_next, positions): (Vec<_>, Vec<_>) = items.unzip();
        let column = |number: usize| {
            let values: Vec<_> = positions.iter().flatten().map(|row| row[number]).collect();
            Tensor::from_slice(&values).view([-1, self.seq_len as i64])
        };
        Ok(((column(0), column(1)), (Tensor::from_slice(&is_next), column(2))))
    }
}

#[cfg(test)]
mod tests {
    use super::super::VocabOptions;
    use super::*;

    #[test]
    fn a_pair_is_laid_out_with_its_marks_and_filled_up() {
        let corpus = Corpus::of(&[["a a", "b"]]);
        let vocab = Vocab::build(&corpus, VocabOptions::default());
        let (a, b) = (vocab.token("a"), vocab.token("b"));
        let dataset = BertDataset::new(&corpus, &vocab, 8, 0);
        // In some epoch nothing is masked.
        let layout = (0..100)
            .map(|epoch| dataset.item(0, epoch).1)
            .find(|positions| positions.iter().all(|[_, _, label]| *label == Vocab::PAD));
        let layout = layout.unwrap();
        let column = |number: usize| layout.iter().map(|row| row[number]).collect::<Vec<_>>();
        assert_eq!(column(0), [Vocab::SOS, a, a, Vocab::EOS, b, Vocab::EOS, 0, 0]);
        assert_eq!(column(1), [1, 1, 1, 1, 2, 2, 0, 0]);
        assert_eq!(column(2), [0; 8]);
        assert_eq!(BertDataset::new(&corpus, &vocab, 4, 0).item(0, 0).1.len(), 4);
    }
}
