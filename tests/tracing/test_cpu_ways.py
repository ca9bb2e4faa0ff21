"""Where a plain run on the CPU does otherwise than fake tensors under a dispatch mode: against the real allocator."""

from collections import Counter
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.semantics import semantics
from memplan.tracing.sparse.table import bodies_of
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world
from tests.tracing.real_memory import peak, real_allocations

pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="measured on torch 2.13"),
    pytest.mark.usefixtures("one_thread"),
]
SMALL = 1024
"""Bytes of C++'s own scalars and rows of channels, which these programs are not about."""


@contextmanager
def recording():
    device = DeviceTraits(kind="cpu")
    with fake_world(), semantics(device, "auto") as means:
        recorder = Recorder(device, means.scratch_rules, means.place_rule, Values(), bodies_of(device))
        recorder.recording = True
        with recorder.watching():
            yield recorder


def recorded_allocations(body):
    with recording() as recorder:
        kept = body()
        del kept
        entries = recorder.ledger.entries
        return [
            entries[key].nbytes if action == "alloc" else -entries[key].nbytes
            for action, key, _ in recorder.ledger.events
            if entries[key].place == "device"
        ]


def check(body):
    body()  # One-time allocations of the libraries are not the program's.
    real, recorded = (
        [size for size in run(body) if abs(size) >= SMALL] for run in (real_allocations, recorded_allocations)
    )
    assert peak(recorded) == peak(real)
    assert Counter(recorded) == Counter(real)


POOLS = {
    "plain": {"kernel_size": 2},
    "padded": {"kernel_size": 3, "stride": 2, "padding": 1},
    "last window in part": {"kernel_size": 4, "stride": 3, "ceil_mode": True},
    "dilated": {"kernel_size": 3, "dilation": 2, "stride": 1},
}


@pytest.mark.parametrize("way", POOLS)
@pytest.mark.parametrize("trained", [False, True])
def test_pooling_keeps_indices_only_for_a_gradient(way, trained):
    source = torch.randn(8, 16, 67)
    expected = F.max_pool1d(source, **POOLS[way]).shape

    def body():
        pooled = F.max_pool1d(torch.randn(8, 16, 67, requires_grad=trained), **POOLS[way])
        assert pooled.shape == expected
        with torch.no_grad():
            return pooled, F.max_pool1d(pooled.relu(), **POOLS[way])

    check(body)


def images(batch, channels, *sides):
    return torch.randn(batch, channels, *sides)


SOURCES = {
    "signals": lambda: images(8, 32, 64),
    "turned signals": lambda: images(8, 64, 32).transpose(1, 2),
    "channels last": lambda: images(8, 32, 12, 12).to(memory_format=torch.channels_last),
    "volumes": lambda: images(8, 32, 4, 6, 8),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("gradient", [torch.ones_like, lambda result: torch.ones_like(result).contiguous()])
def test_batch_norm_makes_the_gradients_that_are_asked_for(source, trained, gradient):
    def body():
        weight, bias = torch.ones(32, requires_grad=True), torch.zeros(32, requires_grad=True)
        result = F.batch_norm(SOURCES[source]().requires_grad_(trained) * 2, None, None, weight, bias, training=True)
        result.backward(gradient(result))
        return weight, bias

    check(body)


def test_angles_are_computed_as_complex_numbers():
    check(lambda: torch.complex(torch.randn(40, 50), torch.randn(40, 50)).angle())


def test_gradients_of_signs_take_no_memory():
    """The second derivative of a magnitude: of a sign it is zero, which no memory holds."""

    def body():
        source = torch.randn(40, 50, requires_grad=True)
        magnitude = (source * 3).abs()
        (slope,) = torch.autograd.grad((magnitude * source).sum(), source, create_graph=True)
        (slope.square().sum() + magnitude.sum()).backward()
        return source

    check(body)


@pytest.mark.parametrize("shape", [(40, 8), (2, 12, 12)])
def test_gradients_of_reflectors_are_filled_column_by_column(shape):
    def body():
        source = torch.randn(shape, requires_grad=True)
        reflectors = source * 2
        product = torch.linalg.householder_product(reflectors, reflectors[..., 0, :] * 3)
        product.square().sum().backward()
        return source

    body()
    # A column lives in a real run while it is copied to its place.
    column = 4 * torch.empty(shape)[..., 0].numel()
    assert peak(recorded_allocations(body)) == pytest.approx(peak(real_allocations(body)), abs=3 * column)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("values", [torch.linalg.eigvalsh, torch.linalg.svdvals, torch.linalg.eigvals])
def test_vectors_are_found_only_for_a_gradient(values, trained):
    def body():
        matrix = torch.randn(48, 48).requires_grad_(trained)
        with torch.no_grad():
            kept = values(matrix)
        return kept, values(matrix)

    check(body)


@pytest.mark.parametrize("values", [torch.linalg.eigvalsh, torch.linalg.svdvals, torch.linalg.eigvals])
def test_vectors_are_found_wherever_the_program_has_a_dispatch_mode_of_its_own(values):
    recompute = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])

    def body():
        matrix = torch.randn(48, 48)
        return matrix, checkpoint(values, matrix, use_reentrant=False, context_fn=recompute)

    check(body)


@pytest.mark.parametrize("sizes", [(12, 4, 32, 64), (24, 16, 64, 96), (10, 8, 64, 64)])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_lstm_keeps_a_workspace_only_for_gradients(sizes, mode):
    steps, batch, inputs, hidden = sizes

    def body():
        layer = nn.LSTM(inputs, hidden)
        with mode():
            return layer, layer(torch.randn(steps, batch, inputs))

    body()
    assert peak(recorded_allocations(body)) == pytest.approx(peak(real_allocations(body)), abs=SMALL)


def test_what_backward_does_in_place_it_does_in_a_closure_too():
    def body():
        weight = torch.randn(40, 50, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def closure():
            doubled = weight * 2
            value = doubled.quantile(0.5, dim=-1).sum() + doubled.sum()
            value.backward()
            return value

        optimizer.step(closure)
        return weight

    body()
    assert peak(recorded_allocations(body)) == pytest.approx(peak(real_allocations(body)), abs=SMALL)


LAYERS = {
    "norm first": ({"norm_first": True, "activation": "gelu"}, {}),
    "norm last": ({}, {}),
    "autocast": ({"norm_first": True}, {}),
    "padding": ({}, {"src_key_padding_mask": torch.arange(64).expand(4, 64) > 60}),
    "causal": ({}, {"src_mask": torch.ones(64, 64).tril().logical_not()}),
}


@pytest.mark.parametrize("case", LAYERS)
def test_the_fast_path_of_an_encoder_layer(case):
    options, masks = LAYERS[case]

    def body():
        layer = nn.TransformerEncoderLayer(32, 4, 96, 0.0, batch_first=True, **options).eval()
        given = {name: mask.tolist() for name, mask in masks.items()}
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
            return layer(torch.randn(4, 64, 32), **{name: torch.tensor(mask) for name, mask in given.items()})

    check(body)


@pytest.mark.parametrize("kind", ["self", "other", "others"])
@pytest.mark.parametrize("needs_weights", [False, True])
def test_the_fast_path_of_attention(kind, needs_weights):
    def body():
        attention = nn.MultiheadAttention(32, 4, batch_first=True).eval()
        query, key, value = (torch.randn(4, 64, 32) for _ in range(3))
        given = {"self": (query, query, query), "other": (query, key, key), "others": (query, key, value)}[kind]
        with torch.inference_mode():
            return torch._native_multi_head_attention(
                *given, 32, 4, attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight,
                attention.out_proj.bias, None, needs_weights,
            )  # fmt: skip

    check(body)


def test_parts_of_inputs_and_weights_in_inference_mode():
    def body():
        weight, source = nn.Parameter(torch.randn(16, 32)), torch.randn(4, 16)
        with torch.inference_mode():
            return torch.cat([source.narrow(1, 0, 8), source[:, 8:]], 1) @ weight.narrow(1, 0, 16)

    check(body)


LOSSES = {
    "logits": F.binary_cross_entropy_with_logits,
    "weighted logits": lambda made, target: F.binary_cross_entropy_with_logits(made, target, weight=target),
    "angles": lambda made, target: torch.atan2(made, target).sum(),
}


@pytest.mark.parametrize("case", LOSSES)
@pytest.mark.parametrize("create_graph", [False, True], ids=["once", "with a graph"])
def test_gradients_of_gradients_overwrite_nothing(case, create_graph):
    def body():
        made, target = torch.randn(64, 64, requires_grad=True), torch.rand(64, 64)
        (slope,) = torch.autograd.grad(LOSSES[case](made.sigmoid(), target), made, create_graph=create_graph)
        return slope

    check(body)
