"""What the example layers must equal: the layers of torch.nn and the functions of torch.nn.init.

    python tests/python/layers.py layers.safetensors
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import init
from torch.optim.swa_utils import update_bn


saved = {}


def put(name, *tensors):
    for index, tensor in enumerate(tensors):
        saved[f"{name}.{index}"] = tensor.detach().clone().contiguous()


def layer(name, *sizes, build, forward=lambda layer, *inputs: layer(*inputs)):
    torch.manual_seed(0)
    module = build()
    for parameter, tensor in module.named_parameters():
        print(name, parameter, list(tensor.shape))
        saved[f"{name}.initial.{parameter}"] = tensor.detach().clone()
    inputs = [torch.randn(size, requires_grad=True) for size in sizes]

    def outputs():
        result = forward(module, *inputs)
        flat = []
        for part in result if isinstance(result, tuple) else [result]:
            flat.extend(part if isinstance(part, tuple) else [part])
        return [part for part in flat if part is not None]

    trained = outputs()
    torch.stack([(output * torch.randn(output.shape)).sum() for output in trained]).sum().backward()
    put(f"{name}.train", *trained)
    put(f"{name}.gradient", *[tensor.grad for tensor in inputs])
    for parameter, tensor in module.named_parameters():
        saved[f"{name}.gradient.{parameter}"] = tensor.grad.clone()
    module.eval()
    put(f"{name}.eval", *outputs())
    with torch.no_grad():
        put(f"{name}.no_grad", *outputs())


def batch_norms():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU(), nn.BatchNorm1d(3))
    batches = [torch.randn(rows, 3) * rows for rows in range(2, 9)]
    model(batches[0])
    update_bn(batches[:6], model)
    model(batches[6])
    for name, module in [("0", model[0]), ("1", model[2])]:
        saved.update({f"update_bn.{name}.{buffer}": value.clone() for buffer, value in module.named_buffers()})


def simple_layers():
    conv = dict(stride=2, padding=1, groups=2)
    layer("conv1d", (2, 4, 9), build=lambda: nn.Conv1d(4, 6, 3, **conv))
    layer("conv2d", (2, 4, 9, 8), build=lambda: nn.Conv2d(4, 6, 3, **conv))
    layer("conv3d", (2, 4, 5, 4, 6), build=lambda: nn.Conv3d(4, 6, 3, **conv))
    conv = dict(stride=2, padding=1, output_padding=1, groups=2)
    layer("conv_transpose1d", (2, 4, 9), build=lambda: nn.ConvTranspose1d(4, 6, 3, **conv))
    layer("conv_transpose2d", (2, 4, 5, 4), build=lambda: nn.ConvTranspose2d(4, 6, 3, **conv))
    layer("conv_transpose3d", (2, 4, 3, 4, 5), build=lambda: nn.ConvTranspose3d(4, 6, 3, **conv))
    layer("linear", (5, 7), build=lambda: nn.Linear(7, 3))
    layer("layer_norm", (5, 3, 7), build=lambda: nn.LayerNorm([3, 7]))
    layer("layer_norm_without_bias", (5, 7), build=lambda: nn.LayerNorm(7, eps=0.01, bias=False))
    layer("group_norm", (5, 6, 4), build=lambda: nn.GroupNorm(3, 6, eps=0.01))


def recurrent_layers():
    deep = dict(num_layers=2, dropout=0.3, bidirectional=True, batch_first=True)
    layer("lstm", (3, 5, 4), build=lambda: nn.LSTM(4, 6, **deep))
    layer(
        "lstm_of_one_sequence",
        (5, 4),
        (1, 6),
        (1, 6),
        build=lambda: nn.LSTM(4, 6, bias=False),
        forward=lambda lstm, xs, h, c: lstm(xs, (h, c)),
    )
    layer("gru", (3, 5, 4), build=lambda: nn.GRU(4, 6, **deep))
    layer("gru_with_a_state", (5, 3, 4), (1, 3, 6), build=lambda: nn.GRU(4, 6))


CAUSAL = nn.Transformer.generate_square_subsequent_mask(5).isneginf()
PADDING = torch.tensor([[False, False, False, False, True], [False] * 5])


def attention():
    def self_attention(name, **options):
        layer(
            name,
            (2, 5, 8),
            build=lambda: nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True),
            forward=lambda attention, xs: attention(xs, xs, xs, **options),
        )

    self_attention("attention")
    self_attention("attention_without_weights", need_weights=False)
    self_attention(
        "attention_with_masks", attn_mask=CAUSAL, key_padding_mask=PADDING, average_attn_weights=False
    )
    layer(
        "attention_to_others",
        (4, 2, 8),
        (5, 2, 8),
        build=lambda: nn.MultiheadAttention(8, 2, dropout=0.2),
        forward=lambda attention, query, key: attention(query, key, key),
    )
    layer(
        "attention_of_all_options",
        (4, 2, 8),
        (5, 2, 3),
        (5, 2, 7),
        build=lambda: nn.MultiheadAttention(
            8, 2, dropout=0.2, add_bias_kv=True, add_zero_attn=True, kdim=3, vdim=7
        ),
        forward=lambda attention, *inputs: attention(
            *inputs, key_padding_mask=PADDING, need_weights=False
        ),
    )
    layer(
        "attention_of_one_sequence",
        (4, 8),
        (5, 8),
        (5, 8),
        build=lambda: nn.MultiheadAttention(8, 2, dropout=0.2, bias=False),
    )


def transformers():
    def encoder_layer(**options):
        return nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, **options)

    for name, options in [
        ("encoder_layer", {}),
        ("encoder_layer_batch_first", dict(batch_first=True)),
        ("encoder_layer_gelu", dict(batch_first=True, activation="gelu", norm_first=True)),
        ("encoder_layer_tanh", dict(batch_first=True, activation=torch.tanh, bias=False)),
    ]:
        layer(name, (2, 5, 8), build=lambda: encoder_layer(**options))
    for name, masks in [
        ("encoder", {}),
        ("encoder_causal", dict(mask=CAUSAL)),
        ("encoder_padded", dict(src_key_padding_mask=PADDING)),
        ("encoder_masked", dict(mask=CAUSAL, src_key_padding_mask=PADDING)),
    ]:
        layer(
            name,
            (2, 5, 8),
            build=lambda: nn.TransformerEncoder(
                encoder_layer(batch_first=True), 2, norm=nn.LayerNorm(8), enable_nested_tensor=False
            ),
            forward=lambda encoder, xs: encoder(xs, **masks),
        )


def functions():
    for name, size, function in [
        ("uniform_", (5, 7), lambda t: init.uniform_(t, -0.3, 2.0)),
        ("normal_", (5, 7), lambda t: init.normal_(t, 1.5, 0.1)),
        ("trunc_normal_", (50, 7), lambda t: init.trunc_normal_(t)),
        ("trunc_normal_of_a_tail", (50, 7), lambda t: init.trunc_normal_(t, 0.1, 0.5, 0.8, 1.3)),
        ("constant_", (5, 7), lambda t: init.constant_(t, 0.3)),
        ("eye_", (5, 7), init.eye_),
        ("dirac_", (6, 2, 3, 4), lambda t: init.dirac_(t, 2)),
        ("xavier_uniform_", (5, 7, 2), lambda t: init.xavier_uniform_(t, init.calculate_gain("relu"))),
        ("xavier_normal_", (5, 7), init.xavier_normal_),
        ("kaiming_uniform_", (5, 7), lambda t: init.kaiming_uniform_(t, a=0.2)),
        (
            "kaiming_normal_",
            (5, 7, 3),
            lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
        ),
        ("kaiming_linear", (5, 7), lambda t: init.kaiming_normal_(t, nonlinearity="linear")),
        ("kaiming_tanh", (5, 7), lambda t: init.kaiming_normal_(t, nonlinearity="tanh")),
        ("kaiming_selu", (5, 7), lambda t: init.kaiming_normal_(t, nonlinearity="selu")),
        ("orthogonal_", (5, 7), init.orthogonal_),
        ("orthogonal_tall", (9, 2, 3), lambda t: init.orthogonal_(t, 0.7)),
        ("sparse_", (5, 7), lambda t: init.sparse_(t, 0.3)),
        ("zeros", (2, 2), init.zeros_),
    ]:
        torch.manual_seed(0)
        tensor = torch.full(size, 9.0, requires_grad=True)
        function(tensor)
        saved[f"init.{name}"] = tensor.detach().clone()
        saved[f"init.{name}.next"] = torch.rand(1)


def main(file):
    simple_layers()
    recurrent_layers()
    attention()
    transformers()
    functions()
    batch_norms()
    save_file(saved, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
