"""bitsandbytes on fake tensors: what its layers and optimizers take, against its formulas and against real tensors."""

import math
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensor

from memplan.job.optimizers import make_optimizer
from memplan.tracing.bitsandbytes import shape_only_bitsandbytes
from memplan.tracing.cuda import cuda_semantics
from memplan.tracing.records import DeviceTraits, Storage, Trace
from memplan.tracing.world import fake_world
from tests.support.libraries import library
from tests.tracing.jobs import source, trace

bnb = library("bitsandbytes", minversion="0.46")

CUDA = DeviceTraits(kind="cuda")
ROOT = Path(__file__).parents[2]
NF4: dict[str, Any] = {"quant_type": "nf4", "compute_dtype": torch.bfloat16, "bias": False}

sides = st.integers(1, 40).map(lambda count: 16 * count)


def quantised(rows: int, columns: int, *, double: bool) -> Callable[[], torch.nn.Module]:
    """A 4-bit layer in bfloat16 between the input and a trained layer."""

    def model() -> torch.nn.Module:
        layer = bnb.nn.Linear4bit(columns, rows, compress_statistics=double, **NF4).to(torch.bfloat16)
        return torch.nn.Sequential(torch.nn.Linear(columns, columns, dtype=torch.bfloat16), layer)

    return model


def traced(model: Callable[[], torch.nn.Module], width: int, tokens: int = 8, **parts: Any) -> Trace:
    job = source(
        model,
        lambda _: torch.zeros(tokens, width, dtype=torch.bfloat16),
        loss=lambda output, _: output.float().sum(),
        **parts,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(job, CUDA)


def weights(recorded: Trace, prefix: str = "1.") -> list[Storage]:
    return [each for each in recorded.storages if each.role == "parameter" and each.name.startswith(prefix)]


@settings(max_examples=6, deadline=None)
@given(rows=sides, columns=sides)
def test_nf4_takes_half_a_byte_an_element_and_four_bytes_a_block(rows: int, columns: int) -> None:
    elements = rows * columns
    found = sorted(each.nbytes for each in weights(traced(quantised(rows, columns, double=False), columns)))
    assert found == sorted([elements // 2, 4 * math.ceil(elements / 64), 64])


@settings(max_examples=6, deadline=None)
@given(rows=sides, columns=sides)
def test_double_quantisation_takes_one_byte_a_block(rows: int, columns: int) -> None:
    elements = rows * columns
    blocks = math.ceil(elements / 64)
    found = sorted(each.nbytes for each in weights(traced(quantised(rows, columns, double=True), columns)))
    assert found == sorted([elements // 2, blocks, 4 * math.ceil(blocks / 256), 4, 64, 1024])


@pytest.mark.parametrize("double", [False, True])
def test_a_layer_quantises_to_what_it_does_for_real(double: bool) -> None:
    layer = bnb.nn.Linear4bit(96, 160, compress_statistics=double, **NF4).to(torch.bfloat16).to("cpu")
    state = layer.weight.quant_state
    real = [layer.weight.data, state.absmax, state.code]
    if state.nested:
        real += [state.offset, state.state2.absmax, state.state2.code]
    found = weights(traced(quantised(160, 96, double=double), 96))
    assert sorted(each.nbytes for each in found) == sorted(each.untyped_storage().nbytes() for each in real)


def test_what_was_never_moved_is_quantised_when_it_is_placed() -> None:
    moved = traced(lambda: quantised(64, 64, double=True)().to("cuda"), 64)
    left = traced(quantised(64, 64, double=True), 64)
    assert [each.nbytes for each in weights(moved)] == [each.nbytes for each in weights(left)]


def test_backward_dequantises_the_whole_weight_and_gives_it_back() -> None:
    # More elements than any activation, so that the copy is the one storage of its size.
    recorded = traced(quantised(256, 512, double=False), 512)
    copies = [each for each in recorded.storages if each.nbytes == 2 * 256 * 512 and each.role == "intermediate"]
    freed = {event.storage for event in recorded.events if event.action == "free"}
    backward = [each for each in copies if recorded.ops[each.birth].phase == "backward"]
    assert len(backward) == len(recorded.steps)
    assert all(each.id in freed for each in copies)


@pytest.mark.parametrize("trained", [False, True])
def test_a_layer_keeps_its_input_only_where_its_weight_is_trained(trained: bool) -> None:
    tokens = 24

    def kept(last: Callable[[], torch.nn.Module]) -> int:
        model = lambda: torch.nn.Sequential(torch.nn.Linear(64, 64, dtype=torch.bfloat16), last())  # noqa: E731
        recorded = traced(model, 64, tokens)
        first = next(op.index for op in recorded.ops if op.phase == "backward")
        past = [event for event in recorded.events if event.op < first]
        alive = {event.storage for event in past} - {event.storage for event in past if event.action == "free"}
        sizes = [each.nbytes for each in recorded.storages if each.id in alive and each.role == "intermediate"]
        return sizes.count(2 * 64 * tokens)

    dense = kept(lambda: torch.nn.Linear(64, 64, bias=False, dtype=torch.bfloat16).requires_grad_(trained))
    quantised = kept(lambda: bnb.nn.Linear4bit(64, 64, **NF4).to(torch.bfloat16))
    assert dense - quantised == trained


def test_int8_weights_take_a_byte_an_element_and_four_a_row() -> None:
    def model() -> torch.nn.Module:
        layer = bnb.nn.Linear8bitLt(64, 96, bias=False, has_fp16_weights=False, threshold=6.0)
        return torch.nn.Sequential(torch.nn.Linear(64, 64, dtype=torch.bfloat16), layer.to(torch.bfloat16))

    sizes = {each.nbytes for each in weights(traced(model, 64))}
    assert sizes == {64 * 96, 4 * 96}


# Smaller than 4096: fp32 states. Smaller than 100,000: never paged. Larger: paged.
SIZES = (1_000, 50_000, 200_000)


class Vectors(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(size)) for size in SIZES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float().sum() + torch.stack([part.sum() for part in self.parts]).sum()


def states(optimizer: Callable[..., torch.optim.Optimizer]) -> tuple[int, int]:
    """Bytes of an optimizer's state on the device and on the host."""
    recorded = traced(Vectors, 8, optimizer=optimizer)
    kept = [each for each in recorded.storages if each.role == "optimizer_state"]
    device = sum(each.nbytes for each in kept if each.place == "device")
    return device, sum(each.nbytes for each in kept if each.place == "host")


def eight_bit(size: int, moments: int) -> int:
    """``Optimizer2State.init_state``: codes, and a maximum for every 256."""
    return moments * (4 * size if size < 4096 else size + 4 * math.ceil(size / 256))


MAPS = 1024
"""Bytes of a map from codes to values; all parameters share it."""


@pytest.mark.parametrize(
    ("name", "device", "host"),
    [
        ("AdamW", 8 * sum(SIZES), 0),
        ("PagedAdamW", 8 * sum(SIZES[:2]), 8 * SIZES[2]),
        ("Lion", 4 * sum(SIZES), 0),
        ("AdamW8bit", sum(eight_bit(size, 2) for size in SIZES) + 2 * MAPS, 0),
        ("Lion8bit", sum(eight_bit(size, 1) for size in SIZES) + MAPS, 0),
        ("PagedAdamW8bit", sum(eight_bit(size, 2) for size in SIZES) + 2 * MAPS - 2 * SIZES[2], 2 * SIZES[2]),
    ],
)
def test_optimizers_keep_what_their_kernels_need(name: str, device: int, host: int) -> None:
    assert states(getattr(bnb.optim, name)) == (device, host)


def test_memplans_own_8_bit_adamw_keeps_the_same() -> None:
    for named, theirs in (("adamw-8bit", "AdamW8bit"), ("paged-adamw-8bit", "PagedAdamW8bit")):
        assert states(lambda parameters, named=named: make_optimizer(named, parameters)) == states(
            getattr(bnb.optim, theirs)
        )


def test_torch_and_bitsandbytes_are_as_before_afterwards() -> None:
    def seen() -> tuple[object, ...]:
        return (
            vars(FakeTensor)["device"],
            vars(torch.Tensor).get("_make_subclass"),
            hasattr(torch._C, "_cuda_getCurrentRawStream"),
            bnb.functional.lib,
            bnb.functional.get_paged,
            bnb.functional.name2qmap,
            torch.ops.bitsandbytes.quantize_4bit,
            list(sys.meta_path),
        )

    before = seen()
    with pytest.raises(ZeroDivisionError), shape_only_bitsandbytes():
        raise ZeroDivisionError
    assert seen() == before


def test_parameters_are_of_both_kinds() -> None:
    with fake_world(), cuda_semantics(CUDA), shape_only_bitsandbytes():
        layer = bnb.nn.Linear4bit(64, 64, **NF4)
        assert isinstance(layer.weight, bnb.nn.Params4bit)
        assert isinstance(layer.weight, torch.nn.Parameter)
        assert isinstance(layer.weight, FakeTensor)
        assert [name for name, _ in layer.named_parameters()] == ["weight"]


@pytest.mark.slow
def test_an_import_inside_a_trace_makes_real_tensors_and_serves_the_next_trace() -> None:
    script = """
        import sys
        import torch
        from torch._subclasses.fake_tensor import FakeTensor
        from memplan.tracing.records import DeviceTraits
        from tests.tracing.jobs import source, trace

        def model():
            import bitsandbytes
            return torch.nn.Sequential(torch.nn.Linear(64, 64), bitsandbytes.nn.Linear4bit(64, 64))

        assert "bitsandbytes" not in sys.modules
        job = source(model, lambda _: torch.zeros(8, 64), loss=lambda output, _: output.sum())
        peaks = [len(trace(job, DeviceTraits(kind="cuda")).ops) for _ in range(2)]
        assert peaks[0] == peaks[1], peaks
        kept = [value for name, module in sys.modules.items() if name.startswith("bitsandbytes")
                for value in vars(module).values()]
        assert not [value for value in kept if isinstance(value, FakeTensor)]
        assert [value for value in kept if isinstance(value, torch.Tensor)]
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_qlora_by_peft_trains_its_adapters_on_packed_weights() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft = pytest.importorskip("peft")
        transformers = pytest.importorskip("transformers")
        replace = pytest.importorskip("transformers.integrations.bitsandbytes").replace_with_bnb_linear
    width, rank, layers = 128, 8, 2

    def model() -> torch.nn.Module:
        config = transformers.LlamaConfig(
            hidden_size=width,
            intermediate_size=256,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            vocab_size=500,
        )
        options = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
        base = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
        base = replace(base, modules_to_not_convert=["lm_head"], quantization_config=options)
        for layer in base.modules():
            if isinstance(layer, bnb.nn.Linear4bit):
                weight = torch.empty(layer.out_features, layer.in_features, dtype=torch.bfloat16)
                layer.weight = bnb.nn.Params4bit(weight, requires_grad=False, **vars(layer.weight)).to("cuda")
        adapters = peft.LoraConfig(r=rank, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        return peft.get_peft_model(base, adapters)

    def batch(_: int) -> dict[str, torch.Tensor]:
        tokens = torch.zeros(1, 32, dtype=torch.int64)
        return {"input_ids": tokens, "labels": tokens}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorded = trace(source(model, batch), CUDA)
    packed = [each for each in recorded.storages if each.name.endswith("q_proj.base_layer.weight")]
    assert [each.nbytes for each in packed] == [width * width // 2] * layers
    assert recorded.model.trainable_parameters == layers * 2 * 2 * rank * width
    states = [each for each in recorded.storages if each.role == "optimizer_state" and each.place == "device"]
    moments = [each for each in states if each.nbytes > 4]
    assert sum(each.nbytes for each in moments) == 2 * 4 * recorded.model.trainable_parameters
