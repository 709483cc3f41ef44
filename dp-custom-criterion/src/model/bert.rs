//! The embedding, a stack of blocks, and two heads.

use super::options::{MAX_LEN, ModelOptions};
use super::transformer::Layer;
use tch::nn::{Linear, Module, Path};
use tch::{Device, Kind, Tensor};
use tch_parallel::nn::{EmbeddingOptions, embedding, linear};

/// codertimo's `BERT`, and his `BERTLM` around it: guesses whether the second sentence follows the
/// first, and which tokens were masked.
pub struct LanguageModel {
    embedding: Layer,
    transformer_blocks: Vec<Layer>,
    next_sentence: Linear,
    mask_lm: Linear,
}

impl LanguageModel {
    /// Draws the initial weights in codertimo's order. `block` makes a block of the transformer.
    pub fn new(
        path: &Path<'_>,
        options: &ModelOptions,
        vocab_size: i64,
        block: impl Fn(&Path<'_>) -> Layer,
    ) -> Self {
        let (bert, hidden) = (path / "bert", options.hidden);
        let block = |number| block(&(&bert / "transformer_blocks" / number));
        let head = |name, size| linear(path / name / "linear", hidden, size, Default::default());
        Self {
            embedding: bert_embedding(&(&bert / "embedding"), options, vocab_size),
            transformer_blocks: (0..options.layers).map(block).collect(),
            next_sentence: head("next_sentence", 2),
            mask_lm: head("mask_lm", vocab_size),
        }
    }

    /// Takes tokens and segments, both `[batch, seq_len]` of integers. Gives log-probabilities: of
    /// "no" and "yes" to the next sentence, `[batch, 2]`, and of every token at every position,
    /// `[batch, seq_len, vocab_size]`. The latter is by far the largest tensor of the training.
    // ANCHOR: forward
    pub fn forward_t(&self, tokens: &Tensor, segments: &Tensor, train: bool) -> (Tensor, Tensor) {
        let x = self.bert(tokens, segments, train);
        // The first position, [CLS], stands for the whole pair.
        let next = self.next_sentence.forward(&x.select(1, 0)).log_softmax(-1, None::<Kind>);
        let mlm = self.mask_lm.forward(&x).log_softmax(-1, None::<Kind>);
        (next, mlm)
    }
    // ANCHOR_END: forward

    /// Tokens and segments `[batch, seq_len]` to vectors `[batch, seq_len, hidden]`. There is no
    /// normalisation after the last block.
    fn bert(&self, tokens: &Tensor, segments: &Tensor, train: bool) -> Tensor {
        // No position attends to padding, which is token 0. The mask has the same row for every position.
        let mask = tokens.gt(0).unsqueeze(1).repeat([1, tokens.size()[1], 1]).unsqueeze(1);
        let x = (self.embedding)((tokens.shallow_clone(), segments.shallow_clone()), train);
        self.transformer_blocks.iter().fold(x, |x, block| block((x, mask.shallow_clone()), train))
    }
}

/// codertimo's `BERTEmbedding`: the sum of three vectors for each position. Tokens and segments
/// `[batch, seq_len]` to vectors `[batch, seq_len, hidden]`.
fn bert_embedding(path: &Path<'_>, options: &ModelOptions, vocab_size: i64) -> Layer {
    let padded = EmbeddingOptions { padding_idx: Some(0), ..Default::default() };
    let ModelOptions { hidden, dropout, .. } = *options;
    let token = embedding(path / "token", vocab_size, hidden, padded);
    // A variable that is not trained, PyTorch's buffer: so it is saved, and reaches replicas.
    let trainable = false;
    let table = sinusoids(hidden).to_device(path.device());
    let position = (path / "position").add("pe", table, trainable);
    // 0 for padding, 1 for the first sentence, 2 for the second.
    let segment = embedding(path / "segment", 3, hidden, padded);
    Box::new(move |(tokens, segments), train| {
        let position = position.narrow(1, 0, tokens.size()[1]);
        let sum = token.forward(&tokens) + position + segment.forward(&segments);
        sum.dropout(dropout, train)
    })
}

/// The positions' vectors from "Attention is all you need": sines in the even columns, cosines in
/// the odd ones, of wavelengths that grow from column to column.
fn sinusoids(hidden: i64) -> Tensor {
    let integers = (Kind::Int64, Device::Cpu);
    let position = Tensor::arange(MAX_LEN, integers).to_kind(Kind::Float).unsqueeze(1);
    let even = Tensor::arange_start_step(0, hidden, 2, integers).to_kind(Kind::Float);
    let frequency = (even * -(10000f64.ln() / hidden as f64)).exp();
    let angle = position * frequency;
    // [MAX_LEN, hidden / 2, 2] in memory is sine, cosine, sine, cosine …
    Tensor::stack(&[angle.sin(), angle.cos()], 2).view([1, MAX_LEN, hidden])
}

#[cfg(test)]
mod tests {
    use super::super::transformer_block;
    use super::*;
    use exhibit_kit::weights::parameters;
    use report::parse_flags;
    use tch::nn::VarStore;

    fn model(vs: &VarStore, flags: &str, vocab_size: i64) -> LanguageModel {
        let options: ModelOptions = parse_flags(flags.split_whitespace()).unwrap();
        let block = |path: &Path<'_>| transformer_block(path, &options);
        LanguageModel::new(&vs.root(), &options, vocab_size, block)
    }

    #[test]
    fn at_codertimos_size_it_has_513_v_and_6_319_362_parameters() {
        for vocab_size in [1000, 10_000] {
            let vs = VarStore::new(Device::Cpu);
            let _ = model(&vs, "", vocab_size);
            assert_eq!(parameters(&vs) as i64, 513 * vocab_size + 6_319_362);
        }
    }

    #[test]
    fn dropout_is_for_training_only() {
        let tiny = "--hidden=16 --layers=2 --attn-heads=4 --dropout=0.5";
        let model = model(&VarStore::new(Device::Cpu), tiny, 50);
        let tokens = Tensor::from_slice(&[3i64, 7, 2, 8, 2]).unsqueeze(0);
        let mlm = |train| model.forward_t(&tokens, &tokens.ones_like(), train).1;
        assert_eq!(mlm(false), mlm(false));
        assert_ne!(mlm(true), mlm(true));
    }
}
