//! The forward pass, in PyTorch's operations and their order.

use super::masks::Masks;
use super::{AttentionOptions, InProjection, MultiheadAttention};
use c10d_sys::{amp::cuda_autocast_enabled, tensor::grad_enabled, tensor::identity};
use tch::{Kind, Tensor, nn::Linear, nn::ModuleT};

impl MultiheadAttention {
    /// The outputs, of the query's shape, and the weights, `[N, L, S]` or, for each head, `[N, num_heads, L, S]`.
    ///
    /// The query is `[L, N, embed_dim]`, the key `[S, N, kdim]` and the value `[S, N, vdim]`, or
    /// these without N. If they are the same tensor, one product projects all three, as in PyTorch.
    ///
    /// # Panics
    /// Like tch's layers, if the inputs or masks do not fit; if `is_causal` comes without a mask.
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: AttentionOptions<'_>,
        train: bool,
    ) -> (Tensor, Option<Tensor>) {
        assert!(
            !options.is_causal || options.attn_mask.is_some(),
            "attn_mask is missing, but must be the causal mask that is_causal promises"
        );
        let batched = query.dim() == 3;
        let mut masks = Masks::new(options.attn_mask, options.key_padding_mask, query.kind());
        let bool_masks = [options.attn_mask, options.key_padding_mask];
        if bool_masks.into_iter().flatten().all(|mask| mask.kind() == Kind::Bool)
            && batched
            && same(query, key)
            && same(key, value)
            && let Some([weight, bias]) = self.fast_path(query, train, &[])
            && let Some(out_bias) = &self.out_proj.bs
        {
            let (mask, kind) = masks.merged(query, self.num_heads);
            let AttentionOptions { need_weights, average_attn_weights, .. } = options;
            let (outputs, weights) = Tensor::internal_native_multi_head_attention(
                query,
                key,
                value,
                self.embed_dim,
                self.num_heads,
                weight,
                bias,
                &self.out_proj.ws,
                out_bias,
                mask,
                need_weights,
                average_attn_weights,
                kind,
            );
            return (outputs, need_weights.then_some(weights));
        }
        let arranged = |tensor: &Tensor| match (batched, self.options.batch_first) {
            (true, true) => tensor.transpose(1, 0),
            (true, false) => tensor.shallow_clone(),
            (false, _) => tensor.unsqueeze(1),
        };
        // Tensors that are the same must stay the same.
        let v = arranged(value);
        let k = if same(key, value) { v.shallow_clone() } else { arranged(key) };
        let q = if same(query, key) { k.shallow_clone() } else { arranged(query) };
        if !batched {
            masks.key_padding = masks.key_padding.map(|mask| mask.unsqueeze(0));
        }
        let (outputs, weights) = self.attend([q, k, v], masks, options, train);
        match (batched, self.options.batch_first) {
            (true, true) => (outputs.transpose(1, 0), weights),
            (true, false) => (outputs, weights),
            (false, _) => (outputs.squeeze_dim(1), weights.map(|weights| weights.squeeze_dim(0))),
        }
    }

    /// The packed projection, if PyTorch would take its kernel for evaluations without gradients,
    /// which rounds differently. `others` are the layer's weights.
    pub(in super::super) fn fast_path(
        &self,
        query: &Tensor,
        train: bool,
        others: &[&Tensor],
    ) -> Option<[&Tensor; 2]> {
        let InProjection::Packed(weight) = &self.in_proj else { return None };
        let bias = self.in_proj_bias.as_ref()?;
        let Linear { ws, bs } = &self.out_proj;
        let own = [Some(query), Some(weight), Some(bias), Some(ws), bs.as_ref()];
        let mut weights = own.iter().flatten().chain(others);
        let fast = !train
            && self.options.batch_first
            && !self.options.add_bias_kv
            && !self.options.add_zero_attn
            && self.num_heads % 2 == 0
            && query.kind() == weight.kind()
            && !cuda_autocast_enabled()
            && !(grad_enabled() && weights.any(|weight| weight.requires_grad()));
        fast.then_some([weight, bias])
    }

    fn project(&self, [q, k, v]: &[Tensor; 3]) -> [Tensor; 3] {
        let bias = self.in_proj_bias.as_ref();
        let weights = match &self.in_proj {
            InProjection::Packed(weight) if same(k, v) && same(q, k) => {
                return unpack(&q.linear(weight, bias));
            }
            InProjection::Packed(weight) if same(k, v) => {
                let sizes = [self.embed_dim, 2 * self.embed_dim];
                let weights = weight.split_with_sizes(sizes, 0);
                let biases = bias.map(|bias| bias.split_with_sizes(sizes, 0));
                let bias = |index: usize| biases.as_ref().map(|biases| &biases[index]);
                let [k, v] = unpack(&k.linear(&weights[1], bias(1)));
                return [q.linear(&weights[0], bias(0)), k, v];
            }
            InProjection::Packed(weight) => weight.chunk(3, 0),
            InProjection::Separate(weights) => weights.iter().map(Tensor::shallow_clone).collect(),
        };
        let biases = bias.map(|bias| bias.chunk(3, 0));
        let project = |tensor: &Tensor, index: usize| {
            tensor.linear(&weights[index], biases.as_ref().map(|biases| &biases[index]))
        };
        [project(q, 0), project(k, 1), project(v, 2)]
    }

    /// `torch.nn.functional.multi_head_attention_forward` for inputs `[L, N, E]`.
    fn attend(
        &self,
        inputs: [Tensor; 3],
        masks: Masks,
        options: AttentionOptions<'_>,
        train: bool,
    ) -> (Tensor, Option<Tensor>) {
        let (length, batch) = (inputs[0].size()[0], inputs[0].size()[1]);
        let (heads, width) = (self.num_heads, self.embed_dim / self.num_heads);
        let Masks { mut attn, mut key_padding } = masks;
        let AttentionOptions { need_weights, average_attn_weights, mut is_causal, .. } = options;
        if is_causal && key_padding.is_none() && !need_weights {
            attn = None;
        } else if key_padding.is_some() {
            is_causal = false;
        }
        let [q, mut k, mut v] = self.project(&inputs);
        drop(inputs);
        let mut attn = attn.map(|mask| if mask.dim() == 2 { mask.unsqueeze(0) } else { mask });
        let mut masks_for_one_more = || {
            for mask in [&mut attn, &mut key_padding].into_iter().flatten() {
                *mask = mask.constant_pad_nd([0, 1]);
            }
        };
        if let Some([bias_k, bias_v]) = &self.bias_kv {
            k = Tensor::cat(&[k, bias_k.repeat([1, batch, 1])], 0);
            v = Tensor::cat(&[v, bias_v.repeat([1, batch, 1])], 0);
            masks_for_one_more();
        }
        let per_head =
            |tensor: Tensor| tensor.view([tensor.size()[0], batch * heads, width]).transpose(0, 1);
        let [q, mut k, mut v] = [q, k, v].map(per_head);
        if self.options.add_zero_attn {
            let zeros = Tensor::zeros([batch * heads, 1, width], (k.kind(), k.device()));
            [k, v] = [k, v].map(|tensor| Tensor::cat(&[&tensor, &zeros], 1));
            masks_for_one_more();
        }
        let source = k.size()[1];
        if let Some(padding) = key_padding {
            let padding = padding.view([batch, 1, 1, source]).expand([-1, heads, -1, -1], false);
            let padding = padding.reshape([batch * heads, 1, source]);
            attn = Some(match attn {
                Some(mask) => mask + padding,
                None => padding,
            });
        }
        let dropout = if train { self.options.dropout } else { 0.0 };
        let project = |outputs: Tensor| {
            let outputs = outputs.reshape([length * batch, self.embed_dim]);
            let outputs = outputs.linear(&self.out_proj.ws, self.out_proj.bs.as_ref());
            outputs.view([length, batch, self.embed_dim])
        };
        if need_weights {
            let q = q * (1.0 / width as f64).sqrt();
            let k = k.transpose(-2, -1);
            let scores = attn.map_or_else(|| q.bmm(&k), |mask| mask.baddbmm(&q, &k, 1, 1));
            let mut weights = scores.softmax(-1, None::<Kind>);
            if dropout > 0.0 {
                weights = weights.dropout(dropout, true);
            }
            let outputs = project(weights.bmm(&v).transpose(0, 1));
            let weights = weights.view([batch, heads, length, source]);
            let weights = match average_attn_weights {
                true => weights.mean_dim([1].as_slice(), false, None::<Kind>),
                false => weights,
            };
            return (outputs, Some(weights));
        }
        let mask = attn.map(|mask| match mask.size()[0] {
            1 => mask.unsqueeze(0),
            _ => mask.view([batch, heads, -1, source]),
        });
        let [q, k, v] = [(q, length), (k, source), (v, source)]
            .map(|(tensor, length)| tensor.view([batch, heads, length, width]));
        let outputs = Tensor::scaled_dot_product_attention(
            &q,
            &k,
            &v,
            mask,
            dropout,
            is_causal,
            None::<f64>,
            false,
        );
        (project(outputs.permute([2, 0, 1, 3])), None)
    }
}

/// Self-attention: every element of the sequence is query, key and value.
impl ModuleT for MultiheadAttention {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        let options = AttentionOptions { need_weights: false, ..Default::default() };
        self.forward(xs, xs, xs, options, train).0
    }
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    identity(a) == identity(b)
}

/// The `N` projections that one product has computed, each contiguous.
fn unpack<const N: usize>(packed: &Tensor) -> [Tensor; N] {
    let width = packed.size().last().map_or(0, |width| width / N as i64);
    let parts = packed.unflatten(-1, [N as i64, width]).unsqueeze(0).transpose(0, -2);
    let parts = parts.squeeze_dim(-2).contiguous();
    std::array::from_fn(|index| parts.get(index as i64))
}
