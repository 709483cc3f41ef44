//! A small GPT that learns the characters of a text on several processes: minGPT-ddp of
//! pytorch/examples. Equal to `tests/python/mingpt.py` to the last bit.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example mingpt -- --text LICENSE-APACHE
//! ```

use anyhow::Result;
use clap::Parser;
use report::{MetricsLog, ProcessGroupArgs, Step, Timing, exit, say};
use serde_json::json;
use std::{collections::BTreeSet, fs, path::Path, path::PathBuf, time::Instant};
use tch::nn::{self, Embedding, LayerNorm, Linear, Module, ModuleT, SequentialT, VarStore};
use tch::{Kind, Tensor, no_grad};
use tch_parallel::checkpoint::{self, Training};
use tch_parallel::data::{
    DataLoader, DataLoaderOptions, Dataset, DistributedSampler, random_split,
};
use tch_parallel::distributed::{
    AverageMeter, DistributedDataParallel, FullyShard, FullyShardOptions, ProcessGroup,
    init_process_group,
};
use tch_parallel::nn::init::{constant_, normal_};
use tch_parallel::nn::{
    AttentionOptions, CheckpointWrapper, LinearOptions, MultiheadAttention,
    MultiheadAttentionOptions, embedding, layer_norm, linear, multihead_attention,
    named_parameters,
};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, ParamGroup, clip_grad_norm_};
use tch_parallel::{LogicalDevice, memory::max_memory_allocated};

#[derive(Debug, Parser)]
struct Args {
    /// The text to learn.
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Passes over the text.
    #[arg(long, default_value_t = 1)]
    epochs: u64,
    /// Blocks per step and rank.
    #[arg(long, default_value_t = 16)]
    batch_size: usize,
    /// Characters per block.
    #[arg(long, default_value_t = 32)]
    block_size: usize,
    /// Transformer blocks.
    #[arg(long, default_value_t = 2)]
    n_layer: i64,
    /// Attention heads per block.
    #[arg(long, default_value_t = 2)]
    n_head: i64,
    /// Features per character.
    #[arg(long, default_value_t = 32)]
    n_embd: i64,
    /// Probability of a zero in training.
    #[arg(long, default_value_t = 0.1)]
    dropout: f64,
    /// Learning rate of AdamW.
    #[arg(long, default_value_t = 3e-4)]
    lr: f64,
    /// Weight decay of the linear layers' weights.
    #[arg(long, default_value_t = 0.1)]
    weight_decay: f64,
    /// Clip the norm of all gradients to this.
    #[arg(long, default_value_t = 1.0)]
    grad_norm_clip: f64,
    /// For weights, dropout, and the order of the blocks.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    process_group: ProcessGroupArgs,
    /// Shard the model, the gradients and the optimizer's state over the ranks.
    #[arg(long)]
    fsdp: bool,
    /// Compute the blocks' activations again in the backward pass.
    #[arg(long)]
    checkpoint_activations: bool,
    /// Write the training to this file after every epoch.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Continue the training in this file.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write the weights to this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write each rank's losses to this directory.
    #[arg(long, value_name = "DIR")]
    metrics: Option<PathBuf>,
}

fn main() {
    exit(|| train(&Args::parse()))
}

fn train(args: &Args) -> Result<()> {
    let text = Text::read(&args.text, args.block_size)?;
    let vocab_size = text.characters.len() as i64;
    let group = init_process_group(args.process_group.options())?;
    tch::manual_seed(args.seed as i64);
    let vs = VarStore::new(group.device());
    // ANCHOR: shard
    let block = |path: &nn::Path<'_>| match args.checkpoint_activations {
        true => nn::seq_t().add(CheckpointWrapper::new(Block::new(path, args))),
        false => nn::seq_t().add(Block::new(path, args)),
    };
    if args.fsdp {
        let sharding = FullyShard::new(&vs, &group, FullyShardOptions::default());
        let model = sharding.root(|root| {
            Gpt::new(root, args, vocab_size, |blocks, path| blocks.add(sharding.shard(path, block)))
        })?;
        fit(args, text, &group, vs, &model, |loss| model.backward(loss))
    // ANCHOR_END: shard
    } else {
        let gpt = Gpt::new(&vs.root(), args, vocab_size, |blocks, path| blocks.add(block(&path)));
        let model = DistributedDataParallel::new(gpt, &vs, &group)?;
        fit(args, text, &group, vs, &model, |loss| model.backward(loss))
    }
}

fn fit(
    args: &Args,
    text: Text,
    group: &ProcessGroup,
    mut vs: VarStore,
    model: &impl ModuleT,
    backward: impl Fn(&Tensor) -> tch_parallel::Result<()>,
) -> Result<()> {
    let [train_set, test_set] = random_split(text, [0.9, 0.1], args.seed)?;
    let sampler = DistributedSampler::new(group, args.seed);
    let in_order = DistributedSampler { shuffle: false, ..sampler };
    let batch_size = args.batch_size;
    // As in most Python programs, an epoch draws a number from the generator of dropout.
    let options = DataLoaderOptions { batch_size, draw_base_seed: true, ..Default::default() };
    let train_loader = DataLoader::with_options(train_set, sampler, options.clone())?;
    let test_loader = DataLoader::with_options(test_set, in_order, options)?;

    // From now on for dropout.
    tch::manual_seed((args.seed + group.rank() as u64) as i64);
    let mut optimizer = create_optimizer(&vs, args)?;

    let mut first_epoch = 0;
    if let Some(path) = &args.resume {
        first_epoch = training(&mut vs, &mut optimizer).load(path, group)?.progress;
    }

    let mut timing = Timing::default();
    let mut metrics = MetricsLog::create(args.metrics.as_deref(), group)?;
    for epoch in first_epoch..args.epochs {
        for (step, batch) in train_loader.epoch(epoch)?.to(vs.device()).enumerate() {
            let (tokens, targets) = batch?;
            let began = Instant::now();
            let loss = cross_entropy(&model.forward_t(&tokens, true), &targets);
            optimizer.zero_grad()?;
            backward(&loss)?;
            clip_grad_norm_(&vs.trainable_variables(), args.grad_norm_clip)?;
            optimizer.step()?;
            let loss = f32::try_from(&loss)?;
            timing.step_took(began.elapsed());
            metrics.log("step", &Step { epoch, step, loss })?;
        }

        let mut val_loss = AverageMeter::default();
        for batch in test_loader.epoch(epoch)?.to(vs.device()) {
            let (tokens, targets) = batch?;
            let logits = no_grad(|| model.forward_t(&tokens, false));
            let loss = f64::try_from(cross_entropy(&logits, &targets))?;
            val_loss.update(loss, tokens.size()[0] as usize);
        }
        let val_loss = val_loss.all_reduce(group)?;
        metrics.log("epoch", &json!({ "epoch": epoch, "val_loss": val_loss }))?;
        say(group, format!("epoch {epoch}: validation loss {val_loss:.4}"));
        if let Some(path) = &args.snapshot {
            training(&mut vs, &mut optimizer).save(path, &(epoch + 1), group)?;
        }
    }
    let device = LogicalDevice::of(&vs.trainable_variables()[0]);
    metrics.log("memory", &json!({ "max_memory_allocated": max_memory_allocated(device)? }))?;
    metrics.log("end", &timing.summary())?;
    if let Some(path) = &args.save {
        checkpoint::save(path, &vs, group)?;
    }
    Ok(())
}

/// Weight decay for the weights of linear layers; none for biases, norms and embeddings.
fn create_optimizer(vs: &VarStore, args: &Args) -> Result<Adam> {
    let (decay, others) = named_parameters(vs)
        .into_iter()
        .partition(|(name, parameter)| parameter.dim() == 2 && name != "tok_emb.weight");
    let options = AdamOptions { lr: args.lr, betas: (0.9, 0.95), ..AdamOptions::adamw() };
    Ok(Adam::from_param_groups([
        ParamGroup::new(decay, AdamOptions { weight_decay: args.weight_decay, ..options }),
        ParamGroup::new(others, AdamOptions { weight_decay: 0.0, ..options }),
    ])?)
}

fn training<'a>(vs: &'a mut VarStore, optimizer: &'a mut Adam) -> Training<'a> {
    Training { architecture: "mingpt", vs, optimizer, scheduler: None, scaler: None }
}

/// Sample `i` is the characters from `i` on, and the same moved on by one.
struct Text {
    characters: BTreeSet<char>,
    tokens: Vec<i64>,
    block_size: usize,
}

impl Text {
    fn read(path: &Path, block_size: usize) -> Result<Text> {
        let text = fs::read_to_string(path)?;
        let characters: BTreeSet<_> = text.chars().collect();
        let number = |character| characters.range(..character).count() as i64;
        let tokens = text.chars().map(number).collect();
        Ok(Text { characters, tokens, block_size })
    }
}

impl Dataset for Text {
    /// Tokens and targets, both `[N, block_size]`.
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.tokens.len().saturating_sub(self.block_size)
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> tch_parallel::Result<(Tensor, Tensor)> {
        let blocks = |offset| {
            let block = |&index: &usize| &self.tokens[index + offset..][..self.block_size];
            Tensor::from_slice2(&indices.iter().map(block).collect::<Vec<_>>())
        };
        Ok((blocks(0), blocks(1)))
    }
}

fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Tensor {
    logits.flatten(0, 1).cross_entropy_for_logits(&targets.flatten(0, 1))
}

/// From tokens, `[N, L]`, to the logits of each next token, `[N, L, vocab_size]`.
#[derive(Debug)]
struct Gpt {
    pos_emb: Tensor,
    tok_emb: Embedding,
    dropout: f64,
    blocks: SequentialT,
    ln_f: LayerNorm,
    head: Linear,
}

impl Gpt {
    fn new(
        path: &nn::Path<'_>,
        args: &Args,
        vocab_size: i64,
        add_block: impl Fn(SequentialT, nn::Path<'_>) -> SequentialT,
    ) -> Gpt {
        let width = args.n_embd;
        let gpt = Gpt {
            pos_emb: path.zeros("pos_emb", &[1, args.block_size as i64, width]),
            tok_emb: embedding(path / "tok_emb", vocab_size, width, Default::default()),
            dropout: args.dropout,
            blocks: (0..args.n_layer)
                .fold(nn::seq_t(), |blocks, i| add_block(blocks, path / "blocks" / i)),
            ln_f: layer_norm(path / "ln_f", &[width], Default::default()),
            head: linear(path / "head", width, vocab_size, LinearOptions { bias: false }),
        };
        normal_(&gpt.tok_emb.ws, 0.0, STD);
        init_weights(&gpt.head);
        gpt
    }
}

impl ModuleT for Gpt {
    fn forward_t(&self, tokens: &Tensor, train: bool) -> Tensor {
        let positions = self.pos_emb.narrow(1, 0, tokens.size()[1]);
        let xs = (self.tok_emb.forward(tokens) + positions).dropout(self.dropout, train);
        xs.apply_t(&self.blocks, train).apply(&self.ln_f).apply(&self.head)
    }
}

#[derive(Debug)]
struct Block {
    ln1: LayerNorm,
    ln2: LayerNorm,
    c_proj: Linear,
    attn: MultiheadAttention,
    mlp: [Linear; 2],
    dropout: f64,
}

impl Block {
    fn new(path: &nn::Path<'_>, args: &Args) -> Block {
        let (width, dropout) = (args.n_embd, args.dropout);
        let norm = |name| layer_norm(path / name, &[width], Default::default());
        let layer = |path: nn::Path<'_>, from, to| linear(path, from, to, LinearOptions::default());
        let attn = path / "attn";
        let options =
            MultiheadAttentionOptions { dropout, batch_first: true, ..Default::default() };
        let block = Block {
            ln1: norm("ln1"),
            ln2: norm("ln2"),
            c_proj: layer(&attn / "c_proj", width, width),
            attn: multihead_attention(&attn / "attn", width, args.n_head, options),
            mlp: [
                layer(path / "mlp" / 0, width, 4 * width),
                layer(path / "mlp" / 2, 4 * width, width),
            ],
            dropout,
        };
        let layers = [&block.c_proj, &block.attn.out_proj, &block.mlp[0], &block.mlp[1]];
        layers.into_iter().for_each(init_weights);
        // Smaller where a block's attention is added to its input.
        normal_(&block.c_proj.ws, 0.0, STD / ((2 * args.n_layer) as f64).sqrt());
        block
    }

    fn attention(&self, xs: &Tensor, train: bool) -> Tensor {
        let length = xs.size()[1];
        let future = Tensor::ones([length, length], (Kind::Bool, xs.device())).triu(1);
        let options = AttentionOptions { attn_mask: Some(&future), ..Default::default() };
        let (ys, _) = self.attn.forward(xs, xs, xs, options, train);
        ys.apply(&self.c_proj).dropout(self.dropout, train)
    }

    fn mlp(&self, xs: &Tensor, train: bool) -> Tensor {
        xs.apply(&self.mlp[0]).gelu("none").apply(&self.mlp[1]).dropout(self.dropout, train)
    }
}

impl ModuleT for Block {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        let xs = xs + self.attention(&xs.apply(&self.ln1), train);
        &xs + self.mlp(&xs.apply(&self.ln2), train)
    }
}

/// The standard deviation of GPT-2's initial weights.
const STD: f64 = 0.02;

fn init_weights(layer: &Linear) {
    normal_(&layer.ws, 0.0, STD);
    if let Some(bias) = &layer.bs {
        constant_(bias, 0.0);
    }
}
