"""Pieces of the grammar without a layer: views, in-place, reductions, complex, FFT, linear algebra, values."""

from differential.layers import ALL, ROWS, by, even, narrow
from differential.program import Kind, Piece, Shape


def _pieces(feature: str, on: tuple[Kind, ...], lines: dict[str, str], **more: object) -> tuple[Piece, ...]:
    return tuple(Piece(name=name, feature=feature, on=on, forward=text, **more) for name, text in lines.items())  # type: ignore[arg-type]


_VIEWS = (
    *_pieces("views", ALL, {
        "chunk_cat": "x = torch.cat(x.chunk(2, dim=1)[::-1], dim=1)",
        "unbind_stack": "x = torch.stack(x.unbind(0))",
        "flip": "x = x.flip(1)",
        "roll": "x = torch.roll(x, 1, dims=1)",
        "narrow_cat": "x = torch.cat([x.narrow(1, 0, 1), x[:, 1:]], dim=1)",
        "expand_mul": "x = x * x.mean(0, keepdim=True).expand_as(x)",
        "repeat_mean": "x = x.repeat(2, *[1] * (x.dim() - 1)).view(2, *x.shape).mean(0)",
        "index_select": "x = x.index_select(1, torch.arange(x.shape[1] - 1, -1, -1))",
        "strided_steps": "x = torch.cat([x[:, ::2], x[:, 1::2]], dim=1)",
        "transposed_copy": "x = x.transpose(0, 1).contiguous().transpose(0, 1) + 1",
        "reshape_copy": "x = x.transpose(0, 1).reshape(-1).view(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)",
        "advanced_index": "x = x[torch.arange(x.shape[0]).flip(0)]",
        "gather": "x = x.gather(1, torch.zeros_like(x, dtype=torch.long))",
        "where": "x = torch.where(x > 0, x, x * 0.1)",
        "masked_fill": "x = x.masked_fill(x < 0, 0.0)",
        "split_sum": "x = sum(x.split(1, dim=0)) / 2 + x",
        "repeat_interleave": "x = x.repeat_interleave(2, dim=1)[:, ::2]",
        "as_strided": "x = x.contiguous().as_strided(x.shape, x.contiguous().stride()) * 2",
        "tile": "x = x.tile((1, 2, *[1] * (x.dim() - 2)))[:, : x.shape[1]]",
        "swapaxes": "x = torch.movedim(x, 0, -1).mul(2).movedim(-1, 0)",
    }),
    *_pieces("views", ("sequence",), {
        "windows": "x = x.unfold(1, 4, 4).mean(-1).repeat_interleave(4, dim=1)",
        "tril": "x = (x @ x.transpose(1, 2)).tril() @ x",
        "diagonal": "x = x + (x.transpose(1, 2) @ x).diagonal(dim1=1, dim2=2).unsqueeze(1)",
    }, fits=lambda shape: shape.size[0] % 4 == 0),
    *_pieces("views", ("image",), {
        "permute_last": "x = x.permute(0, 2, 3, 1).contiguous().mul(2).permute(0, 3, 1, 2)",
        "shift_window": "x = torch.roll(x, (1, 1), dims=(2, 3)).unflatten(2, (2, -1)).flatten(2, 3)",
        "pad_reflect": 'x = F.pad(x, (1, 1, 1, 1), mode="reflect")[..., 1:-1, 1:-1]',
        "rot90": "x = x + torch.rot90(x, 2, (2, 3))",
    }, fits=even),
)  # fmt: skip

_IN_PLACE = _pieces("in-place", ALL, {
    "add_": "x = x.clone()\nx += 1",
    "mul_": "x = (x + 0).mul_(2)",
    "relu_": "x = F.relu(x * 1, inplace=True)",
    "dropout_": "x = F.dropout(x * 1, 0.2, inplace=True)",
    "leaky_": "x = F.leaky_relu_(x + 1)",
    "zero_slice": "x = x.clone()\nx[:, 0] = 0",
    "scale_slice": "x = x.clone()\nx[:, ::2] *= 2",
    "masked_fill_": "x = x.clone().masked_fill_(x > 1, 0.0)",
    "fill_buffer": "made = torch.zeros_like(x)\nmade[:] = x\nx = made",
    "fill_parts": "made = torch.empty_like(x)\nfor row in range(2):\n    made[row::2] = x[row::2] * 2\nx = made",
    "index_put": "x = x.clone()\nx[torch.tensor([0, 1])] = 0.5",
    "index_add_": "x = torch.zeros_like(x).index_add_(0, torch.arange(x.shape[0]), x)",
    "scatter_": "x = torch.zeros_like(x).scatter_(1, torch.zeros_like(x, dtype=torch.long), x)",
    "clamp_": "x = (x * 2).clamp_(-1, 1)",
    "copy_": "x = torch.empty_like(x).copy_(x) + 1",
    "view_add_": "x = x.clone()\nx.view(-1)[:8].add_(1)",
    "boolean_write": "x = x.clone()\nx[x < -1] = 0.0",
    "exp_chain": "x = (x * 0.1).exp_().add_(1).log_()",
    "no_grad_stats": "with torch.no_grad():\n    scale = x.abs().amax().add_(1)\nx = x / scale",
})  # fmt: skip

_REDUCTIONS = (
    *_pieces("reductions", ALL, {
        "normalize": "x = F.normalize(x, dim=1)",
        "standardize": "x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-3)",
        "var_mean": "variance, mean = torch.var_mean(x, dim=1, keepdim=True)\nx = (x - mean) * torch.rsqrt(variance + 1)",
        "amax": "x = x - x.amax(dim=1, keepdim=True)",
        "max_with_index": "best, where = x.max(dim=1, keepdim=True)\nx = x + best * (where > 0)",
        "logsumexp": "x = x - torch.logsumexp(x, dim=1, keepdim=True)",
        "cumsum": "x = torch.cumsum(x, dim=1) / x.shape[1]",
        "cumprod": "x = torch.cumprod(x.sigmoid(), dim=1)",
        "cummax": "x = torch.cummax(x, dim=1).values",
        "logcumsumexp": "x = torch.logcumsumexp(x, dim=1)",
        "sort": "x = torch.sort(x, dim=1).values",
        "topk": "values, where = x.topk(2, dim=1)\nx = torch.zeros_like(x).scatter(1, where, values)",
        "kthvalue": "x = x - x.kthvalue(2, dim=1, keepdim=True).values",
        "median": "x = x - x.median(dim=1, keepdim=True).values",
        "prod": "x = x + torch.sigmoid(x).prod(dim=1, keepdim=True)",
        "norm": "x = x / (1 + x.norm(dim=1, keepdim=True))",
        "argmax_gather": "x = x + x.gather(1, x.argmax(dim=1, keepdim=True))",
        "quantile": "x = x - torch.quantile(x.flatten(1), 0.5, dim=1).view(-1, *[1] * (x.dim() - 1))",
        "aminmax": "low, high = torch.aminmax(x, dim=1, keepdim=True)\nx = (x - low) / (high - low + 1)",
    }),
    *_pieces("pointwise", ALL, {
        "lerp": "x = torch.lerp(x, x.detach() * 2, 0.3)",
        "addcmul": "x = torch.addcmul(x, x, x, value=0.1)",
        "addcdiv": "x = torch.addcdiv(x, x, x.abs() + 1)",
        "atan2": "x = torch.atan2(x, x + 2)",
        "erf": "x = torch.erf(x) + torch.special.expit(x)",
        "hypot": "x = torch.hypot(x, x + 1)",
        "pow": "x = x.abs().clamp(0.1) ** 1.5",
        "logaddexp": "x = torch.logaddexp(x, -x)",
        "round_trick": "x = x + (x.round() - x).detach()",
        "xlogy": "x = torch.special.xlogy(x.sigmoid(), x.sigmoid())",
        "noise": "x = x + 0.1 * torch.randn_like(x)",
        "bernoulli": "x = x * torch.bernoulli(torch.full_like(x, 0.5))",
        "fan_out": "x = x.sin() + x.cos() + x.tanh() + x",
        "rational": "x = x / (1 + x * x)",
        "half_round_trip": "x = x.bfloat16().float()",
        "half_product": "x = (x.bfloat16() * 2 + x).float()",
        "double_product": "x = (x.double() * 2 + x).float()",
        "integer_mask": "x = x * (x > 0).int()",
        "bool_sum": "x = x + (x > 0).sum(dim=1, keepdim=True) / x.shape[1]",
    }),
    *_pieces("products", ("flat",), {
        "gram": "x = (x @ x.t()) @ x / x.shape[0]",
        "cdist": "x = torch.cdist(x, x) @ x / x.shape[0]",
        "cdist_city": "x = torch.cdist(x, x, p=1).neg().exp() @ x / x.shape[0]",
        "cosine": "x = F.cosine_similarity(x.unsqueeze(1), x.unsqueeze(0), dim=-1) @ x",
        "outer": "x = x + torch.outer(x[:, 0], x[0])",
        "addmm": "x = torch.addmm(x, x[:, : x.shape[0]] @ x[: x.shape[1]], x) if x.shape[1] >= x.shape[0] else x * 2",
        "pairwise": "x = x * F.pairwise_distance(x, x.roll(1, 0)).unsqueeze(1)",
        "tensordot": "x = torch.tensordot(torch.tensordot(x, x, dims=([1], [1])), x, dims=1) / x.shape[0]",
    }, fits=narrow(512)),
    *_pieces("products", ("sequence",), {
        "bmm": "x = torch.bmm(torch.bmm(x, x.transpose(1, 2)), x) / x.shape[2]",
        "baddbmm": "x = torch.baddbmm(x, x @ x.mT, x, alpha=0.01)",
        "einsum_gram": 'x = torch.einsum("btc,bsc,bsd->btd", x, x, x) / x.shape[1]',
        "linear_attention": "x = F.elu(x) @ (F.elu(x).transpose(1, 2) @ x) / x.shape[1]",
    }, fits=narrow(512)),
)  # fmt: skip

_COMPLEX = (
    *_pieces("complex", ALL, {
        "complex_square": "x = torch.complex(x, x.cos()).square().real",
        "polar": "x = torch.polar(x.abs() + 0.1, x).imag",
        "complex_abs": "x = torch.complex(x, x + 1).abs()",
        "complex_conj": "z = torch.complex(x, -x)\nx = (z * z.conj()).real",
        "complex_angle": "x = torch.complex(x + 3, x).angle()",
    }),
    *_pieces("complex", ROWS, {
        "view_as_complex": "z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())\n"
                           "x = torch.view_as_real(z * z).flatten(-2)",
    }, fits=by(2)),
    Piece(name="complex_weight", feature="complex", on=ROWS,
          init="self.p{i} = nn.Parameter(torch.randn({c}, {c}, dtype=torch.complex64) / 16)",
          forward="x = (x.to(torch.complex64) @ self.p{i}).abs()"),
    *_pieces("fft", ALL, {
        "fft_real": "x = torch.fft.fft(x, dim=1).real / x.shape[1]",
        "rfft_round": "x = torch.fft.irfft(torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1)",
        "fft_filter": "spectrum = torch.fft.rfft(x, dim=-1)\nx = torch.fft.irfft(spectrum * 0.5, n=x.shape[-1], dim=-1)",
    }),
    *_pieces("fft", ("sequence", "image"), {
        "fnet": "x = torch.fft.fft2(x, norm=\"ortho\").real",
        "fft_ortho": "x = torch.fft.ifft(torch.fft.fft(x, dim=1, norm=\"ortho\"), dim=1, norm=\"ortho\").real",
    }),
    Piece(name="spectral_weight", feature="fft", on=("sequence",),
          init="self.p{i} = nn.Parameter(torch.randn({t} // 2 + 1, {c}, 2) / 8)",
          forward="spectrum = torch.fft.rfft(x, dim=1) * torch.view_as_complex(self.p{i})\n"
                  "x = torch.fft.irfft(spectrum, n={t}, dim=1)"),
    Piece(name="stft", feature="fft", on=("flat",),
          forward="x = torch.stft(x, 64, return_complex=True, window=torch.hann_window(64)).abs().flatten(1)",
          fits=lambda shape: shape.channels >= 64,
          out=lambda shape, _: Shape("flat", 33 * (shape.channels // 16 + 1))),
)  # fmt: skip

_GRAM = "gram = x.transpose(-1, -2) @ x / x.shape[-2] + torch.eye({c})\n"
_LINALG = _pieces("linear algebra", ROWS, {
    "inverse": _GRAM + "x = x @ torch.linalg.inv(gram)",
    "pinv": _GRAM + "x = x @ torch.linalg.pinv(gram)",
    "least_squares": _GRAM + "x = torch.linalg.lstsq(gram, x.transpose(-1, -2)).solution.transpose(-1, -2)",
    "cholesky": _GRAM + "x = x @ torch.linalg.cholesky(gram)",
    "solve": _GRAM + "x = torch.linalg.solve(gram, x.transpose(-1, -2)).transpose(-1, -2)",
    "qr": _GRAM + "x = x @ torch.linalg.qr(gram).Q",
    "eigh": _GRAM + "x = x * torch.linalg.eigvalsh(gram).unsqueeze(-2)",
    "svd": _GRAM + "x = x * torch.linalg.svdvals(gram).unsqueeze(-2)",
    "logdet": _GRAM + "x = x * torch.logdet(gram).unsqueeze(-1).unsqueeze(-1).flatten(-2)[..., None].mean()",
    "matrix_exp": _GRAM + "x = x @ torch.linalg.matrix_exp(gram * 0.1)",
    "triangular": _GRAM + "x = torch.linalg.solve_triangular(gram.tril(), x.transpose(-1, -2), upper=False).mT",
    "matrix_power": _GRAM + "x = x @ torch.linalg.matrix_power(gram, 3) / 10",
    "multi_dot": "x = torch.linalg.multi_dot([x.flatten(0, -2), x.flatten(0, -2).t(), x.flatten(0, -2)]).view(x.shape) / 100",
}, fits=narrow(128))  # fmt: skip

_VALUES = (
    *_pieces("values", ALL, {
        "item_scale": "x = x * (1.0 + 0.0 * x.detach().mean().item())",
        "branch": "x = x * 2 if x.detach().mean() > 1e6 else x + 1",
        "guard": "if torch.isnan(x).any():\n    raise ValueError('nan')",
        "loop_counter": "for count in range(int(torch.tensor([2, 1]).sum())):\n    x = x + count",
        "finite": "x = x if torch.isfinite(x).all() else torch.zeros_like(x)",
        "one_hot": "x = x + F.one_hot(x.argmax(1), x.shape[1]).movedim(-1, 1)",
        "bucketize": "x = x * torch.bucketize(x.detach(), torch.tensor([-1.0, 0.0, 1.0]))",
        "searchsorted": "x = x + torch.searchsorted(torch.linspace(-1, 1, 8), x.detach()) * 0.1",
        "shape_list": "rows = torch.tensor(x.shape).tolist()[0]\nx = x.view(rows, *x.shape[1:])",
    }),
    *_pieces("selection", ("flat",), {
        "mask_rows": "x = x[x[:, 0].detach() > -100]",
        "nonzero_rows": "x = x[(x[:, 0].detach() > -100).nonzero(as_tuple=True)[0]]",
        "randperm": "x = x[torch.randperm(x.shape[0])]",
        "top_rows": "x = x[x.norm(dim=1).topk(x.shape[0]).indices]",
        "sorted_rows": "x = x[torch.argsort(x[:, 0])]",
        "segments": "where = torch.arange(x.shape[0]) // 2\nx = torch.zeros_like(x).index_add(0, where, x)",
        "scatter_reduce": "where = (torch.arange(x.shape[0]) // 2).unsqueeze(1).expand_as(x)\n"
                          'x = torch.zeros_like(x).scatter_reduce(0, where, x, "mean")',
        "scatter_rows": "where = (torch.arange(x.shape[0]) // 2).unsqueeze(1).expand_as(x)\n"
                        "x = torch.zeros_like(x).bfloat16().scatter_add(0, where, x.bfloat16()).float()",
        "multinomial": "x = x * torch.multinomial(x.detach().softmax(-1), 1)",
    }),
)  # fmt: skip

_SPARSE = (
    Piece(name="sparse_coo", feature="sparse", on=("flat",),
          init='self.register_buffer("p{i}", torch.eye({b}).to_sparse())',
          forward="x = torch.sparse.mm(self.p{i}, x)"),
    Piece(name="sparse_csr", feature="sparse", on=("flat",),
          init='self.register_buffer("p{i}", torch.eye({b}).to_sparse_csr())', forward="x = self.p{i} @ x"),
    Piece(name="sparse_edges", feature="sparse", on=("flat",),
          init='edges = torch.stack([torch.arange({b}), torch.arange({b}).flip(0)])\n'
               'self.register_buffer("p{i}", torch.sparse_coo_tensor(edges, torch.ones({b}), ({b}, {b})).coalesce())',
          forward="x = self.p{i} @ x"),
)  # fmt: skip

_SQUARE = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient
"""
_STRAIGHT = """
class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-1, 1)
"""
_SCALED = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2
"""
_FUNCTIONS = (
    Piece(name="own_square", feature="own functions", on=ALL, forward="x = Square.apply(x)", above=_SQUARE),
    Piece(name="own_sign", feature="own functions", on=ALL, forward="x = Straight.apply(x)", above=_STRAIGHT),
    Piece(name="own_dirty", feature="own functions", on=ALL, forward="x = Scaled.apply(x + 1)", above=_SCALED),
    *_pieces("functional", ("flat",), {
        "jacobian": "x = x + torch.vmap(torch.func.jacrev(torch.tanh))(x[:, :8]).sum((1, 2)).unsqueeze(1)",
    }),
    *_pieces("functional", ALL, {
        "vmap": "x = torch.vmap(lambda row: row * row.mean())(x)",
        "func_grad": "x = x + torch.func.grad(lambda each: each.sin().sum())(x)",
        "jvp": "x = torch.func.jvp(torch.tanh, (x,), (torch.ones_like(x),))[1]",
        "vjp": "value, pull = torch.func.vjp(torch.sigmoid, x)\nx = value + pull(torch.ones_like(value))[0]",
        "inner_grad": "inner = x.detach().requires_grad_()\n(slope,) = torch.autograd.grad(inner.exp().sum(), inner)\nx = x + slope",
        "per_sample": "x = torch.vmap(torch.func.grad(lambda row: (row**3).sum()))(x)",
    }),
    Piece(name="functional_call", feature="functional", on=ROWS, init="self.p{i} = nn.Linear({c}, {c})",
          forward="weights = {{name: value * 2 for name, value in self.p{i}.named_parameters()}}\n"
                  "x = torch.func.functional_call(self.p{i}, weights, (x,))"),
    Piece(name="ensemble", feature="functional", on=("flat",),
          init="self.p{i} = nn.Parameter(torch.randn(4, {c}, {c}) / 16)",
          forward="x = torch.vmap(torch.matmul, in_dims=(None, 0))(x, self.p{i}).mean(0)"),
    Piece(name="tensor_hook", feature="hooks", on=ALL,
          forward="x = x * 1\nif x.requires_grad:\n    x.register_hook(lambda gradient: gradient * 2)"),
    Piece(name="retain_grad", feature="hooks", on=ALL, forward="x = x * 1\nif x.requires_grad:\n    x.retain_grad()"),
    Piece(name="kept_output", feature="hooks", on=ALL, forward="x = x * 2\nself.kept = x.detach()"),
    Piece(name="running_mean", feature="buffers", on=ROWS, init='self.register_buffer("p{i}", torch.zeros({c}))',
          forward="with torch.no_grad():\n    self.p{i}.lerp_(x.flatten(0, -2).mean(0), 0.1)\nx = x - self.p{i}"),
    Piece(name="running_rebound", feature="buffers", on=ROWS, init='self.register_buffer("p{i}", torch.zeros({c}))',
          forward="self.p{i} = 0.9 * self.p{i} + 0.1 * x.detach().flatten(0, -2).mean(0)\nx = x - self.p{i}"),
    Piece(name="quantized_codes", feature="values", on=("flat",),
          init="self.p{i} = nn.Embedding(64, {c})",
          forward="codes = self.p{i}(torch.cdist(x, self.p{i}.weight).argmin(-1))\nx = x + (codes - x).detach() + codes * 0"),
    Piece(name="mixture", feature="selection", on=("flat",),
          init="self.p{i} = nn.ModuleList(nn.Linear({c}, {c}) for _ in range(2))\nself.route{i} = nn.Linear({c}, 2)",
          forward="gates = self.route{i}(x).softmax(-1)\n"
                  "x = sum(gates[:, index : index + 1] * layer(x) for index, layer in enumerate(self.p{i}))"),
)  # fmt: skip

OPERATIONS = (*_VIEWS, *_IN_PLACE, *_REDUCTIONS, *_COMPLEX, *_LINALG, *_VALUES, *_SPARSE, *_FUNCTIONS)
