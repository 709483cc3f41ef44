//! Every layer of `nn`: its initial weights, what it makes of inputs in training and in evaluation, and its gradients;
//! and every function of `nn.init`. Saves all of it, which equals Python's to the last bit.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example layers -- layers.safetensors
//! ```

use anyhow::{Context, Result};
use std::env;
use tch::nn::{Module, ModuleT, Path, VarStore};
use tch::{Device, Kind, Tensor, no_grad};
use tch_parallel::nn::init::FanInOut::{FanIn, FanOut};
use tch_parallel::nn::init::{Nonlinearity, calculate_gain};
use tch_parallel::nn::{self, AttentionOptions, EncoderMasks, init, named_parameters};

type Forward<'a> = Box<dyn Fn(&[Tensor], bool) -> Vec<Tensor> + 'a>;

#[derive(Default)]
struct Saved(Vec<(String, Tensor)>);

fn main() -> Result<()> {
    let file = env::args().nth(1).context("the first argument is missing: a file to write")?;
    let mut saved = Saved::default();
    simple_layers(&mut saved);
    recurrent_layers(&mut saved);
    attention(&mut saved);
    transformers(&mut saved);
    functions(&mut saved);
    batch_norms(&mut saved)?;
    Ok(Tensor::write_safetensors(&saved.0, file)?)
}

impl Saved {
    /// A layer that takes one tensor.
    fn module<M: Module + 'static>(
        &mut self,
        name: &str,
        size: &[i64],
        build: impl Fn(Path<'_>) -> M,
    ) {
        self.layer(name, &[size], |path| {
            let layer = build(path);
            Box::new(move |inputs, _| vec![layer.forward(&inputs[0])])
        });
    }

    fn layer(
        &mut self,
        name: &str,
        sizes: &[&[i64]],
        build: impl FnOnce(Path<'_>) -> Forward<'static>,
    ) {
        tch::manual_seed(0);
        let vs = VarStore::new(Device::Cpu);
        let forward = build(vs.root());
        let parameters = named_parameters(&vs);
        for (parameter, tensor) in &parameters {
            println!("{name} {parameter} {:?}", tensor.size());
            self.put(format!("{name}.initial.{parameter}"), tensor);
        }
        // Drawn after the weights: equal only if these have drawn as many numbers as Python's.
        let randn = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu));
        let inputs: Vec<_> = sizes.iter().map(|size| randn(size).set_requires_grad(true)).collect();
        let outputs = forward(&inputs, true);
        let loss = |output: &Tensor| (output * randn(&output.size())).sum(Kind::Float);
        let losses: Vec<_> = outputs.iter().map(loss).collect();
        Tensor::stack(&losses, 0).sum(Kind::Float).backward();
        self.put_all(format!("{name}.train"), &outputs);
        let gradients: Vec<_> = inputs.iter().map(Tensor::grad).collect();
        self.put_all(format!("{name}.gradient"), &gradients);
        for (parameter, tensor) in &parameters {
            self.put(format!("{name}.gradient.{parameter}"), &tensor.grad());
        }
        self.put_all(format!("{name}.eval"), &forward(&inputs, false));
        self.put_all(format!("{name}.no_grad"), &no_grad(|| forward(&inputs, false)));
    }

    fn put(&mut self, name: String, tensor: &Tensor) {
        self.0.push((name, tensor.detach().contiguous().copy()));
    }

    fn put_all(&mut self, name: String, tensors: &[Tensor]) {
        (0..).zip(tensors).for_each(|(index, tensor)| self.put(format!("{name}.{index}"), tensor));
    }
}

/// The running statistics of two batch norms, of which the second sees what the first has made.
fn batch_norms(saved: &mut Saved) -> Result<()> {
    tch::manual_seed(0);
    let vs = VarStore::new(Device::Cpu);
    let first = nn::batch_norm1d(vs.root() / "0", 3, Default::default());
    let second = nn::batch_norm1d(vs.root() / "1", 3, Default::default());
    let options = (Kind::Float, Device::Cpu);
    let batches: Vec<_> = (2..9).map(|rows| Tensor::randn([rows, 3], options) * rows).collect();
    let forward = |batch: &Tensor| second.forward_t(&first.forward_t(batch, true).relu(), true);
    let _ = forward(&batches[0]);
    nn::update_bn(&vs, &batches[..6], |batch| Ok(forward(batch)))?;
    // Again with the momentum.
    let _ = forward(&batches[6]);
    for (name, tensor) in nn::named_buffers(&vs) {
        saved.put(format!("update_bn.{name}"), &tensor);
    }
    Ok(())
}

fn simple_layers(saved: &mut Saved) {
    let options = nn::ConvOptions { stride: 2, padding: 1, groups: 2, ..Default::default() };
    saved.module("conv1d", &[2, 4, 9], |p| nn::conv1d(p, 4, 6, 3, options));
    saved.module("conv2d", &[2, 4, 9, 8], |p| nn::conv2d(p, 4, 6, 3, options));
    saved.module("conv3d", &[2, 4, 5, 4, 6], |p| nn::conv3d(p, 4, 6, 3, options));
    let options = nn::ConvTransposeOptions { stride: 2, padding: 1, ..Default::default() };
    let options = nn::ConvTransposeOptions { output_padding: 1, groups: 2, ..options };
    saved.module("conv_transpose1d", &[2, 4, 9], |p| nn::conv_transpose1d(p, 4, 6, 3, options));
    saved.module("conv_transpose2d", &[2, 4, 5, 4], |p| nn::conv_transpose2d(p, 4, 6, 3, options));
    saved.module("conv_transpose3d", &[2, 4, 3, 4, 5], |p| {
        nn::conv_transpose3d(p, 4, 6, 3, options)
    });
    saved.module("linear", &[5, 7], |p| nn::linear(p, 7, 3, Default::default()));
    saved.module("layer_norm", &[5, 3, 7], |p| nn::layer_norm(p, &[3, 7], Default::default()));
    let options = nn::LayerNormOptions { bias: false, eps: 0.01, ..Default::default() };
    saved.module("layer_norm_without_bias", &[5, 7], |p| nn::layer_norm(p, &[7], options));
    let options = nn::GroupNormOptions { eps: 0.01, ..Default::default() };
    saved.module("group_norm", &[5, 6, 4], |p| nn::group_norm(p, 3, 6, options));
}

fn recurrent_layers(saved: &mut Saved) {
    let deep = nn::RnnOptions { num_layers: 2, dropout: 0.3, ..Default::default() };
    let deep = nn::RnnOptions { bidirectional: true, batch_first: true, ..deep };
    let mut lstm = |name, sizes: &[&[i64]], options| {
        saved.layer(name, sizes, |p| {
            let layer = nn::lstm(p, 4, 6, options);
            Box::new(move |inputs, train| {
                let hx = inputs.get(1).zip(inputs.get(2));
                let (outputs, (h, c)) = layer.forward(&inputs[0], hx, train);
                vec![outputs, h, c]
            })
        });
    };
    lstm("lstm", &[&[3, 5, 4]], deep);
    let without_bias = nn::RnnOptions { bias: false, ..Default::default() };
    lstm("lstm_of_one_sequence", &[&[5, 4], &[1, 6], &[1, 6]], without_bias);
    let mut gru = |name, sizes: &[&[i64]], options| {
        saved.layer(name, sizes, |p| {
            let layer = nn::gru(p, 4, 6, options);
            Box::new(move |inputs, train| {
                let (outputs, h) = layer.forward(&inputs[0], inputs.get(1), train);
                vec![outputs, h]
            })
        });
    };
    gru("gru", &[&[3, 5, 4]], deep);
    gru("gru_with_a_state", &[&[5, 3, 4], &[1, 3, 6]], Default::default());
}

fn attention(saved: &mut Saved) {
    let dropout = nn::MultiheadAttentionOptions { dropout: 0.2, ..Default::default() };
    let batch_first = nn::MultiheadAttentionOptions { batch_first: true, ..dropout };
    let sized = nn::MultiheadAttentionOptions { kdim: Some(3), vdim: Some(7), ..dropout };
    let all = nn::MultiheadAttentionOptions { add_bias_kv: true, add_zero_attn: true, ..sized };
    let without_bias = nn::MultiheadAttentionOptions { bias: false, ..dropout };
    type Masked = fn(&[Tensor; 2]) -> AttentionOptions<'_>;
    let plain: Masked = |_| AttentionOptions::default();
    let without_weights: Masked =
        |_| AttentionOptions { need_weights: false, ..Default::default() };
    let with_masks: Masked = |[mask, padding]| AttentionOptions {
        attn_mask: Some(mask),
        key_padding_mask: Some(padding),
        average_attn_weights: false,
        ..Default::default()
    };
    let padded: Masked = |[_, padding]| AttentionOptions {
        key_padding_mask: Some(padding),
        need_weights: false,
        ..Default::default()
    };
    // The query, and the key and the value if they are others.
    let cases: [(&str, &[&[i64]], nn::MultiheadAttentionOptions, Masked); 6] = [
        ("attention", &[&[2, 5, 8]], batch_first, plain),
        ("attention_without_weights", &[&[2, 5, 8]], batch_first, without_weights),
        ("attention_with_masks", &[&[2, 5, 8]], batch_first, with_masks),
        ("attention_to_others", &[&[4, 2, 8], &[5, 2, 8]], dropout, plain),
        ("attention_of_all_options", &[&[4, 2, 8], &[5, 2, 3], &[5, 2, 7]], all, padded),
        ("attention_of_one_sequence", &[&[4, 8], &[5, 8], &[5, 8]], without_bias, plain),
    ];
    for (name, sizes, options, masked) in cases {
        saved.layer(name, sizes, |p| {
            let layer = nn::multihead_attention(p, 8, 2, options);
            Box::new(move |inputs, train| {
                let query = &inputs[0];
                let key = inputs.get(1).unwrap_or(query);
                let value = inputs.get(2).unwrap_or(key);
                let (outputs, weights) = layer.forward(query, key, value, masked(&masks()), train);
                [Some(outputs), weights].into_iter().flatten().collect()
            })
        });
    }
}

/// A causal mask of five elements, and the padding of two sequences.
fn masks() -> [Tensor; 2] {
    let causal = nn::generate_square_subsequent_mask(5, Device::Cpu).isneginf();
    let padding = Tensor::from_slice2(&[[false, false, false, false, true], [false; 5]]);
    [causal, padding]
}

fn transformers(saved: &mut Saved) {
    use nn::{Activation, TransformerEncoderLayerOptions as Options};
    let small = Options { dim_feedforward: 16, ..Default::default() };
    let batch_first = Options { batch_first: true, ..small };
    let gelu = Options { activation: Activation::Gelu, norm_first: true, ..batch_first };
    let tanh = Activation::Function(Tensor::tanh);
    let tanh = Options { activation: tanh, bias: false, ..batch_first };
    for (name, options) in [
        ("encoder_layer", small),
        ("encoder_layer_batch_first", batch_first),
        ("encoder_layer_gelu", gelu),
        ("encoder_layer_tanh", tanh),
    ] {
        saved.layer(name, &[&[2, 5, 8]], |p| {
            let layer = nn::transformer_encoder_layer(p, 8, 2, options);
            Box::new(move |inputs, train| vec![layer.forward_t(&inputs[0], train)])
        });
    }
    for (name, causal, padded) in [
        ("encoder", false, false),
        ("encoder_causal", true, false),
        ("encoder_padded", false, true),
        ("encoder_masked", true, true),
    ] {
        saved.layer(name, &[&[2, 5, 8]], |p| {
            let mut encoder = nn::transformer_encoder(&p, 8, 2, 2, batch_first);
            encoder.norm = Some(nn::layer_norm(p / "norm", &[8], Default::default()));
            Box::new(move |inputs, train| {
                let [mask, padding] = masks();
                let masks = EncoderMasks {
                    src_mask: causal.then_some(&mask),
                    src_key_padding_mask: padded.then_some(&padding),
                    ..Default::default()
                };
                vec![encoder.forward(&inputs[0], masks, train)]
            })
        });
    }
}

fn functions(saved: &mut Saved) {
    let gain = calculate_gain(Nonlinearity::Relu);
    let leaky = Nonlinearity::LeakyRelu(0.2);
    type Fill<'a> = dyn Fn(&Tensor) + 'a;
    let functions: [(&str, &[i64], &Fill<'_>); 18] = [
        ("uniform_", &[5, 7], &|t| init::uniform_(t, -0.3, 2.0)),
        ("normal_", &[5, 7], &|t| init::normal_(t, 1.5, 0.1)),
        ("trunc_normal_", &[50, 7], &|t| init::trunc_normal_(t, 0.0, 1.0, -2.0, 2.0)),
        ("trunc_normal_of_a_tail", &[50, 7], &|t| init::trunc_normal_(t, 0.1, 0.5, 0.8, 1.3)),
        ("constant_", &[5, 7], &|t| init::constant_(t, 0.3)),
        ("eye_", &[5, 7], &init::eye_),
        ("dirac_", &[6, 2, 3, 4], &|t| init::dirac_(t, 2)),
        ("xavier_uniform_", &[5, 7, 2], &|t| init::xavier_uniform_(t, gain)),
        ("xavier_normal_", &[5, 7], &|t| init::xavier_normal_(t, 1.0)),
        ("kaiming_uniform_", &[5, 7], &|t| init::kaiming_uniform_(t, FanIn, leaky)),
        ("kaiming_normal_", &[5, 7, 3], &|t| init::kaiming_normal_(t, FanOut, Nonlinearity::Relu)),
        ("kaiming_linear", &[5, 7], &|t| init::kaiming_normal_(t, FanIn, Nonlinearity::Linear)),
        ("kaiming_tanh", &[5, 7], &|t| init::kaiming_normal_(t, FanIn, Nonlinearity::Tanh)),
        ("kaiming_selu", &[5, 7], &|t| init::kaiming_normal_(t, FanIn, Nonlinearity::Selu)),
        ("orthogonal_", &[5, 7], &|t| init::orthogonal_(t, 1.0)),
        ("orthogonal_tall", &[9, 2, 3], &|t| init::orthogonal_(t, 0.7)),
        ("sparse_", &[5, 7], &|t| init::sparse_(t, 0.3, 0.01)),
        ("zeros", &[2, 2], &|t| init::constant_(t, 0.0)),
    ];
    for (name, size, function) in functions {
        tch::manual_seed(0);
        let tensor = Tensor::full(size, 9.0, (Kind::Float, Device::Cpu)).set_requires_grad(true);
        function(&tensor);
        saved.put(format!("init.{name}"), &tensor);
        saved.put(format!("init.{name}.next"), &Tensor::rand([1], (Kind::Float, Device::Cpu)));
    }
}
