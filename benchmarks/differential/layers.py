"""Pieces of the grammar: layers with weights, activations, normalisation, pooling and the ways between shapes."""

from collections.abc import Callable

from differential.program import Kind, Piece, Shape
from differential.write import VOCABULARY

ROWS: tuple[Kind, ...] = ("flat", "sequence")
MAPS: tuple[Kind, ...] = ("signal", "image", "volume")
ALL = (*ROWS, *MAPS)


def wide(shape: Shape, size: int) -> Shape:
    """The size becomes the number of channels."""
    return shape._replace(channels=size)


def halved(shape: Shape, size: int) -> Shape:
    """Every side is halved."""
    del size
    return shape._replace(size=tuple(side // 2 for side in shape.size))


def doubled(shape: Shape, size: int) -> Shape:
    """Every side is doubled."""
    del size
    return shape._replace(size=tuple(2 * side for side in shape.size))


def wide_and(change: Callable[[Shape, int], Shape]) -> Callable[[Shape, int], Shape]:
    """``wide`` after another change."""
    return lambda shape, size: wide(change(shape, size), size)


def even(shape: Shape) -> bool:
    """Can every side and the channels be halved?"""
    return shape.channels % 2 == 0 and all(side % 2 == 0 and side >= 8 for side in shape.size)


def small(shape: Shape) -> bool:
    """Can every side be doubled?"""
    return all(side <= 32 for side in shape.size)


def by(divisor: int) -> Callable[[Shape], bool]:
    """Are the channels a multiple?"""
    return lambda shape: shape.channels % divisor == 0


def narrow(most: int) -> Callable[[Shape], bool]:
    """Are the channels few?"""
    return lambda shape: shape.channels <= most


_CALL = "x = self.p{i}(x)"


def _layer(
    name: str,
    feature: str,
    on: tuple[Kind, ...],
    made: str,
    forward: str = _CALL,
    **more: Callable[[Shape], bool] | Callable[[Shape, int], Shape],
) -> Piece:
    return Piece(name=name, feature=feature, on=on, init=f"self.p{{i}} = {made}", forward=forward, **more)  # type: ignore[arg-type]


_DENSE = (
    _layer("linear", "linear", ROWS, "nn.Linear({c}, {n})", out=wide),
    _layer("linear_free", "linear", ROWS, "nn.Linear({c}, {n}, bias=False)", out=wide),
    _layer("bilinear", "linear", ("flat",), "nn.Bilinear({c}, {c}, 64)", "x = self.p{i}(x, x)", fits=narrow(96),
           out=lambda shape, _: wide(shape, 64)),
    _layer("mlp", "linear", ROWS, "nn.Sequential(nn.Linear({c}, {n}), nn.GELU(), nn.Linear({n}, {c}))"),
    _layer("swiglu", "linear", ROWS, "nn.ModuleList(nn.Linear({c}, {n}) for _ in range(2))",
           "x = F.silu(self.p{i}[0](x)) * self.p{i}[1](x)", out=wide),
    _layer("bf16_linear", "mixed types", ROWS, "nn.Linear({c}, {n}).bfloat16()",
           "x = self.p{i}(x.bfloat16()).float()", out=wide),
    _layer("double_linear", "mixed types", ROWS, "nn.Linear({c}, {n}).double()",
           "x = self.p{i}(x.double()).float()", out=wide),
    _layer("lora", "linear", ROWS, "nn.ModuleList([nn.Linear({c}, {c}), nn.Linear({c}, 8), nn.Linear(8, {c})])",
           "x = self.p{i}[0](x) + self.p{i}[2](self.p{i}[1](x)) * 2"),
    _layer("weight_einsum", "linear", ("sequence",), "nn.Parameter(torch.randn({c}, {n}) / 8)",
           'x = torch.einsum("btc,cn->btn", x, self.p{i})', out=wide),
    _layer("matmul_weight", "linear", ROWS, "nn.Parameter(torch.randn({c}, {n}) / 8)", "x = x @ self.p{i}", out=wide),
    _layer("transposed_weight", "linear", ROWS, "nn.Parameter(torch.randn({n}, {c}) / 8)",
           "x = x @ self.p{i}.t()", out=wide),
    _layer("shared_linear", "linear", ROWS, "nn.Linear({c}, {c})", "x = self.p{i}(torch.tanh(self.p{i}(x)))"),
)  # fmt: skip

_ATTENTION = (
    _layer("encoder_layer", "attention", ("sequence",),
           "nn.TransformerEncoderLayer({c}, 4, {n}, dropout=0.1, batch_first=True)", fits=by(8)),
    _layer("encoder_prenorm", "attention", ("sequence",),
           "nn.TransformerEncoderLayer({c}, 4, {n}, 0.0, F.gelu, batch_first=True, norm_first=True)", fits=by(8)),
    _layer("decoder_layer", "attention", ("sequence",),
           "nn.TransformerDecoderLayer({c}, 4, {n}, batch_first=True)", "x = self.p{i}(x, x)", fits=by(8)),
    _layer("multihead", "attention", ("sequence",), "nn.MultiheadAttention({c}, 4, batch_first=True)",
           "x = self.p{i}(x, x, x)[0]", fits=by(8)),
    _layer("multihead_fast", "attention", ("sequence",), "nn.MultiheadAttention({c}, 4, batch_first=True)",
           "x = self.p{i}(x, x, x, need_weights=False)[0]", fits=by(8)),
    _layer("sdpa", "attention", ("sequence",), "nn.Linear({c}, 3 * {c})",
           "q, k, v = self.p{i}(x).view(x.shape[0], -1, 3, 4, {c} // 4).permute(2, 0, 3, 1, 4)\n"
           "x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)", fits=by(8)),
    _layer("sdpa_causal", "attention", ("sequence",), "nn.Linear({c}, 3 * {c})",
           "q, k, v = self.p{i}(x).view(x.shape[0], -1, 3, 4, {c} // 4).permute(2, 0, 3, 1, 4)\n"
           "x = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)", fits=by(8)),
    _layer("sdpa_masked", "attention", ("sequence",), "nn.Linear({c}, 3 * {c})",
           "q, k, v = self.p{i}(x).view(x.shape[0], -1, 3, 4, {c} // 4).permute(2, 0, 3, 1, 4)\n"
           "mask = torch.ones({t}, {t}, dtype=torch.bool).tril()\n"
           "x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)", fits=by(8)),
    _layer("attention_by_hand", "attention", ("sequence",), "nn.Linear({c}, 3 * {c})",
           "q, k, v = self.p{i}(x).chunk(3, dim=-1)\n"
           "scores = (q @ k.transpose(-1, -2) / math.sqrt({c})).softmax(-1)\nx = F.dropout(scores, 0.1) @ v"),
    _layer("attention_masked_by_hand", "attention", ("sequence",), "nn.Linear({c}, 3 * {c})",
           "q, k, v = self.p{i}(x).split({c}, dim=-1)\nscores = torch.bmm(q, k.mT)\n"
           'mask = torch.ones({t}, {t}, dtype=torch.bool).triu(1)\nx = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v'),
    _layer("multihead_weights", "attention", ("sequence",), "nn.MultiheadAttention({c}, 4, batch_first=True)",
           "x, weights = self.p{i}(x, x, x, average_attn_weights=False)\nx = x + weights.pow(2).mean()", fits=by(8)),
    _layer("rotary", "attention", ("sequence",), "nn.Linear({c}, {c})",
           "angles = torch.outer(torch.arange({t}), 1.0 / 10000 ** (torch.arange(0, {c}, 2) / {c}))\n"
           "first, second = self.p{i}(x).chunk(2, dim=-1)\n"
           "x = torch.cat([first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()], -1)",
           fits=by(2)),
)  # fmt: skip

_RECURRENT = (
    _layer("lstm", "recurrent", ("sequence",), "nn.LSTM({c}, {n}, batch_first=True)", "x = self.p{i}(x)[0]", out=wide),
    _layer("lstm_two", "recurrent", ("sequence",), "nn.LSTM({c}, {n}, num_layers=2, dropout=0.1, batch_first=True)",
           "x = self.p{i}(x)[0]", out=wide),
    _layer("gru", "recurrent", ("sequence",), "nn.GRU({c}, {n}, batch_first=True)", "x = self.p{i}(x)[0]", out=wide),
    _layer("gru_both", "recurrent", ("sequence",), "nn.GRU({c}, {n}, batch_first=True, bidirectional=True)",
           "x = self.p{i}(x)[0]", out=lambda shape, size: wide(shape, 2 * size)),
    _layer("lstm_projected", "recurrent", ("sequence",), "nn.LSTM({c}, {n}, proj_size={n} // 2, batch_first=True)",
           "x = self.p{i}(x)[0]", out=lambda shape, size: wide(shape, size // 2)),
    _layer("rnn", "recurrent", ("sequence",), "nn.RNN({c}, {n}, batch_first=True)", "x = self.p{i}(x)[0]", out=wide),
    _layer("lstm_cell", "recurrent", ("sequence",), "nn.LSTMCell({c}, {n})",
           "states, state = [], None\nfor moment in x[:, :16].unbind(1):\n    state = self.p{i}(moment, state)\n"
           "    states.append(state[0])\nx = torch.stack(states, dim=1)",
           out=lambda shape, size: Shape("sequence", size, (min(16, shape.size[0]),))),
    _layer("gru_cell", "recurrent", ("sequence",), "nn.GRUCell({c}, {n})",
           "hidden = x.new_zeros(x.shape[0], {n})\nfor moment in range(8):\n    hidden = self.p{i}(x[:, moment], hidden)\nx = hidden",
           out=lambda _, size: Shape("flat", size), fits=lambda shape: shape.size[0] >= 8),
)  # fmt: skip

_CONVOLUTIONS = (
    _layer("conv", "convolution", ("image",), "nn.Conv2d({c}, {n}, 3, padding=1)", out=wide),
    _layer("conv_1x1", "convolution", ("image",), "nn.Conv2d({c}, {n}, 1, bias=False)", out=wide),
    _layer("conv_strided", "convolution", ("image",), "nn.Conv2d({c}, {n}, 3, stride=2, padding=1)", fits=even,
           out=wide_and(halved)),
    _layer("conv_5x5", "convolution", ("image",), "nn.Conv2d({c}, {n}, 5, padding=2)", out=wide),
    _layer("conv_dilated", "convolution", ("image",), "nn.Conv2d({c}, {n}, 3, padding=2, dilation=2)", out=wide),
    _layer("conv_depthwise", "convolution", ("image",), "nn.Conv2d({c}, {c}, 3, padding=1, groups={c})"),
    _layer("conv_grouped", "convolution", ("image",), "nn.Conv2d({c}, {c}, 3, padding=1, groups=4)", fits=by(4)),
    _layer("conv_circular", "convolution", ("image",), 'nn.Conv2d({c}, {n}, 3, padding=1, padding_mode="circular")',
           out=wide),
    _layer("conv_transposed", "convolution", ("image",), "nn.ConvTranspose2d({c}, {n}, 2, stride=2)", fits=small,
           out=wide_and(doubled)),
    _layer("conv_same", "convolution", ("image",), 'nn.Conv2d({c}, {n}, 3, padding="same")', out=wide),
    _layer("conv_channels_last", "convolution", ("image",),
           "nn.Conv2d({c}, {n}, 3, padding=1).to(memory_format=torch.channels_last)",
           "x = self.p{i}(x.to(memory_format=torch.channels_last)).contiguous()", out=wide),
    _layer("conv_grouped_strided", "convolution", ("image",), "nn.Conv2d({c}, {c}, 3, stride=2, padding=1, groups=4)",
           fits=lambda shape: even(shape) and shape.channels % 4 == 0, out=halved),
    _layer("conv_grouped_wide", "convolution", ("image",), "nn.Conv2d({c}, 4 * {c}, 5, stride=2, padding=2, groups=2)",
           fits=lambda shape: even(shape) and shape.channels <= 96,
           out=lambda shape, size: halved(shape, size)._replace(channels=4 * shape.channels)),
    _layer("conv_strided_last", "convolution", ("image",),
           "nn.Conv2d({c}, {n}, 3, stride=2, padding=1).to(memory_format=torch.channels_last)", fits=even,
           out=wide_and(halved)),
    _layer("conv_transposed_odd", "convolution", ("image",), "nn.ConvTranspose2d({c}, {n}, 3, stride=2, padding=1)",
           "x = self.p{i}(x)[:, :, 1:, 1:].contiguous()", fits=small,
           out=lambda shape, size: wide(shape._replace(size=tuple(2 * side - 2 for side in shape.size)), size)),
    _layer("bf16_conv", "mixed types", ("image",), "nn.Conv2d({c}, {n}, 3, padding=1).bfloat16()",
           "x = self.p{i}(x.bfloat16()).float()", out=wide),
    _layer("bf16_conv_grouped", "mixed types", ("image",), "nn.Conv2d({c}, {c}, 3, padding=1, groups=2).bfloat16()",
           "x = self.p{i}(x.bfloat16()).float()", fits=by(2)),
    _layer("double_conv", "mixed types", ("image",), "nn.Conv2d({c}, {n}, 3, stride=2, padding=1).double()",
           "x = self.p{i}(x.double()).float()", fits=even, out=wide_and(halved)),
    _layer("conv1d", "convolution", ("signal",), "nn.Conv1d({c}, {n}, 3, padding=1)", out=wide),
    _layer("conv1d_dilated", "convolution", ("signal",), "nn.Conv1d({c}, {n}, 3, padding=4, dilation=4)", out=wide),
    _layer("conv1d_transposed", "convolution", ("signal",), "nn.ConvTranspose1d({c}, {n}, 4, stride=2, padding=1)",
           out=wide_and(doubled), fits=lambda shape: shape.size[0] <= 512),
    _layer("conv3d", "convolution 3d", ("volume",), "nn.Conv3d({c}, {n}, 3, padding=1)", out=wide),
    _layer("conv3d_grouped", "convolution 3d", ("volume",), "nn.Conv3d({c}, {c}, 3, padding=1, groups=2)", fits=by(2)),
    _layer("bf16_conv3d", "convolution 3d", ("volume",), "nn.Conv3d({c}, {n}, 3, padding=1).bfloat16()",
           "x = self.p{i}(x.bfloat16()).float()", out=wide),
    _layer("conv3d_strided", "convolution 3d", ("volume",), "nn.Conv3d({c}, {n}, 2, stride=2)", fits=even,
           out=wide_and(halved)),
    _layer("conv3d_transposed", "convolution 3d", ("volume",), "nn.ConvTranspose3d({c}, {n}, 2, stride=2)",
           out=wide_and(doubled), fits=lambda shape: shape.size[0] <= 8),
)  # fmt: skip

_NORMS = (
    _layer("batch_norm_flat", "normalisation", ("flat", "signal"), "nn.BatchNorm1d({c})"),
    _layer("batch_norm", "normalisation", ("image",), "nn.BatchNorm2d({c})"),
    _layer("batch_norm_3d", "normalisation", ("volume",), "nn.BatchNorm3d({c})"),
    _layer("batch_norm_plain", "normalisation", ("image",),
           "nn.BatchNorm2d({c}, affine=False, track_running_stats=False)"),
    _layer("group_norm", "normalisation", MAPS, "nn.GroupNorm(4, {c})", fits=by(4)),
    _layer("instance_norm", "normalisation", ("image",), "nn.InstanceNorm2d({c}, affine=True)"),
    _layer("instance_norm_1d", "normalisation", ("signal",), "nn.InstanceNorm1d({c})"),
    _layer("layer_norm", "normalisation", ROWS, "nn.LayerNorm({c})"),
    _layer("rms_norm", "normalisation", ROWS, "nn.RMSNorm({c})"),
    _layer("local_response", "normalisation", ("image",), "nn.LocalResponseNorm(3)"),
    _layer("rms_by_hand", "normalisation", ROWS, "nn.Parameter(torch.ones({c}))",
           "x = self.p{i} * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)"),
)  # fmt: skip

_POOLS = (
    _layer("max_pool", "pooling", ("image",), "nn.MaxPool2d(2)", fits=even, out=halved),
    _layer("avg_pool", "pooling", ("image",), "nn.AvgPool2d(2)", fits=even, out=halved),
    _layer("lp_pool", "pooling", ("image",), "nn.LPPool2d(2, 2)", fits=even, out=halved),
    _layer("adaptive_avg", "pooling", ("image",), "nn.AdaptiveAvgPool2d((4, 4))",
           out=lambda shape, _: shape._replace(size=(4, 4))),
    _layer("adaptive_max", "pooling", ("image",), "nn.AdaptiveMaxPool2d((4, 4))",
           out=lambda shape, _: shape._replace(size=(4, 4))),
    _layer("unpool", "pooling", ("image",), "nn.MaxPool2d(2, return_indices=True)",
           "small, where = self.p{i}(x)\nx = F.max_unpool2d(small, where, 2)", fits=even),
    _layer("max_pool_1d", "pooling", ("signal",), "nn.MaxPool1d(2)", fits=even, out=halved),
    _layer("avg_pool_1d", "pooling", ("signal",), "nn.AvgPool1d(2)", fits=even, out=halved),
    _layer("max_pool_3d", "pooling", ("volume",), "nn.MaxPool3d(2)", fits=even, out=halved),
    _layer("avg_pool_3d", "pooling", ("volume",), "nn.AvgPool3d(2)", fits=even, out=halved),
    _layer("nearest", "images", ("image",), "nn.Upsample(scale_factor=2)", fits=small, out=doubled),
    _layer("up_bilinear", "images", ("image",), 'nn.Upsample(scale_factor=2, mode="bilinear")', fits=small, out=doubled),
    _layer("up_bicubic", "images", ("image",), 'nn.Upsample(scale_factor=2, mode="bicubic")', fits=small, out=doubled),
    _layer("up_linear", "images", ("signal",), 'nn.Upsample(scale_factor=2, mode="linear")', out=doubled,
           fits=lambda shape: shape.size[0] <= 512),
    _layer("up_trilinear", "images", ("volume",), 'nn.Upsample(scale_factor=2, mode="trilinear")', out=doubled,
           fits=lambda shape: shape.size[0] <= 8),
    _layer("pixel_shuffle", "images", ("image",), "nn.PixelShuffle(2)",
           fits=lambda shape: shape.channels % 4 == 0 and small(shape),
           out=lambda shape, size: doubled(shape, size)._replace(channels=shape.channels // 4)),
    _layer("pixel_unshuffle", "images", ("image",), "nn.PixelUnshuffle(2)",
           fits=even, out=lambda shape, size: halved(shape, size)._replace(channels=shape.channels * 4)),
    _layer("channel_shuffle", "images", ("image",), "nn.ChannelShuffle(2)", fits=by(2)),
    _layer("reflection_pad", "images", ("image",), "nn.ReflectionPad2d(1)", "x = self.p{i}(x)[:, :, 1:-1, 1:-1]"),
    _layer("replication_pad", "images", ("image",), "nn.ReplicationPad2d(1)", "x = F.avg_pool2d(self.p{i}(x), 3, 1)"),
    _layer("zero_pad", "images", ("image",), "nn.ZeroPad2d(1)", "x = F.max_pool2d(self.p{i}(x), 3, 1)"),
    _layer("unfold", "images", ("image",), "nn.Unfold(2, stride=2)", "x = F.fold(self.p{i}(x) * 2, ({h}, {w}), 2, stride=2)",
           fits=even),
    _layer("grid_sample", "images", ("image",), "nn.Parameter(torch.randn(2, 3))",
           "grid = F.affine_grid(self.p{i}.expand(x.shape[0], 2, 3), x.shape, align_corners=False)\n"
           "x = F.grid_sample(x, grid, align_corners=False)"),
)  # fmt: skip

_ACTIVATIONS = tuple(
    Piece(name=made.split("(")[0].lower(), feature="activations", on=ALL, forward=f"x = nn.{made}(x)")
    for made in (
        "ReLU()", "GELU()", "SiLU()", "Mish()", "ELU()", "SELU()", "CELU()", "Softplus()", "Hardswish()", "LeakyReLU()",
        "RReLU()", "Sigmoid()", "Tanh()", "Softshrink()", "Hardshrink()", "Hardtanh()", "LogSigmoid()", "Softsign()",
        "Tanhshrink()", "Hardsigmoid()", "ReLU6()", "Dropout(0.2)", "AlphaDropout(0.2)", "Threshold(0.1, 0.0)",
    )
)  # fmt: skip

_MORE_ACTIVATIONS = (
    Piece(name="gelu_tanh", feature="activations", on=ALL, forward='x = F.gelu(x, approximate="tanh")'),
    Piece(name="softmax", feature="activations", on=ROWS, forward="x = F.softmax(x, dim=-1)"),
    Piece(name="log_softmax", feature="activations", on=ROWS, forward="x = F.log_softmax(x, dim=-1)"),
    Piece(name="softmax_channels", feature="activations", on=MAPS, forward="x = F.softmax(x, dim=1)"),
    Piece(name="gumbel", feature="activations", on=ROWS, forward="x = F.gumbel_softmax(x, tau=0.5)"),
    Piece(name="dropout2d", feature="activations", on=("image",), forward="x = F.dropout2d(x, 0.2)"),
    _layer("prelu", "activations", MAPS, "nn.PReLU({c})"),
    Piece(name="glu", feature="activations", on=ROWS, forward="x = F.glu(x, dim=-1)", fits=by(2),
          out=lambda shape, _: shape._replace(channels=shape.channels // 2)),
)  # fmt: skip

_BETWEEN = (
    _layer("embedding", "embedding", ("ids",), f"nn.Embedding({VOCABULARY}, {{n}})",
           out=lambda shape, size: Shape("sequence", size, shape.size)),
    _layer("embedding_padded", "embedding", ("ids",), f"nn.Embedding({VOCABULARY}, {{n}}, padding_idx=0)",
           out=lambda shape, size: Shape("sequence", size, shape.size)),
    _layer("embedding_bag", "embedding", ("ids",), f"nn.EmbeddingBag({VOCABULARY}, {{n}})",
           out=lambda _, size: Shape("flat", size)),
    _layer("embedding_bag_sum", "embedding", ("ids",), f'nn.EmbeddingBag({VOCABULARY}, {{n}}, mode="sum")',
           out=lambda _, size: Shape("flat", size)),
    _layer("embedding_bag_max", "embedding", ("ids",), f'nn.EmbeddingBag({VOCABULARY}, {{n}}, mode="max")',
           out=lambda _, size: Shape("flat", size)),
    _layer("embedding_positions", "embedding", ("ids",),
           f"nn.ModuleList([nn.Embedding({VOCABULARY}, {{n}}), nn.Embedding(512, {{n}})])",
           "x = self.p{i}[0](x) + self.p{i}[1](torch.arange({t}))",
           out=lambda shape, size: Shape("sequence", size, shape.size)),
    Piece(name="flatten", feature="views", on=MAPS, forward="x = x.flatten(1)",
          fits=lambda shape: shape.elements <= 2048, out=lambda shape, _: Shape("flat", shape.elements)),
    Piece(name="global_mean", feature="reductions", on=MAPS, forward="x = x.flatten(2).mean(-1)",
          out=lambda shape, _: Shape("flat", shape.channels)),
    Piece(name="patches", feature="views", on=("image",), forward="x = x.flatten(2).transpose(1, 2)",
          out=lambda shape, _: Shape("sequence", shape.channels, (shape.size[0] * shape.size[1],)),
          fits=lambda shape: shape.size[0] * shape.size[1] <= 256),
    Piece(name="to_signal", feature="views", on=("sequence",), forward="x = x.transpose(1, 2)",
          out=lambda shape, _: shape._replace(kind="signal")),
    Piece(name="to_sequence", feature="views", on=("signal",), forward="x = x.mT",
          out=lambda shape, _: shape._replace(kind="sequence")),
    Piece(name="last_token", feature="views", on=("sequence",), forward="x = x[:, -1]",
          out=lambda shape, _: Shape("flat", shape.channels)),
    Piece(name="mean_tokens", feature="reductions", on=("sequence",), forward="x = x.mean(dim=1)",
          out=lambda shape, _: Shape("flat", shape.channels)),
    Piece(name="max_tokens", feature="reductions", on=("sequence",), forward="x = x.max(dim=1).values",
          out=lambda shape, _: Shape("flat", shape.channels)),
    Piece(name="to_image", feature="views", on=("flat",), forward="x = x.view(x.shape[0], -1, 8, 8)",
          fits=lambda shape: shape.channels % 256 == 0, out=lambda shape, _: Shape("image", shape.channels // 64, (8, 8))),
)  # fmt: skip

LAYERS = (
    *_DENSE, *_ATTENTION, *_RECURRENT, *_CONVOLUTIONS, *_NORMS, *_POOLS, *_ACTIVATIONS, *_MORE_ACTIVATIONS, *_BETWEEN,
)  # fmt: skip
