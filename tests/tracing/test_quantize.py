"""``--quantize``: layers as bitsandbytes holds them, against its byte formulas and against programs written by hand."""

import importlib.util
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.adapters import Lora, Quantize
from memplan.tracing.records import DeviceTraits, Storage, Trace
from tests.support.libraries import library
from tests.tracing.jobs import source, trace

bnb, peft, transformers = library("bitsandbytes", minversion="0.46"), library("peft"), library("transformers")
of_transformers = library("transformers.integrations.bitsandbytes")
quantizers = library("transformers.quantizers.base")

CUDA = DeviceTraits(kind="cuda")
WIDTH, HIDDEN, VOCABULARY = 128, 192, 320
LORA = Lora(rank=4, targets=("q_proj", "v_proj"))


def llama(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": HIDDEN}
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "use_cache": False}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes | shape | changes))


def tokens(size: int) -> dict[str, torch.Tensor]:
    ids = torch.zeros(size, 16, dtype=torch.int64)
    return {"input_ids": ids, "labels": ids}


def traced(model: Callable[[], nn.Module] = llama, batch: Any = tokens, **options: Any) -> Trace:
    device = options.pop("device", CUDA)
    loss = options.pop("loss", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(source(model, batch, loss=loss), device, **options)


def parameters(found: Trace, part: str) -> list[Storage]:
    return [each for each in found.storages if each.role == "parameter" and part in each.name]


def peak(found: Trace) -> int:
    """Most bytes that are alive on the device at once in the steps."""
    live = highest = 0
    for index, event in enumerate(found.events):
        storage = found.storages[event.storage]
        if storage.place == "device":
            live += storage.nbytes if event.action == "alloc" else -storage.nbytes
        if index >= found.steps[0].first_event:
            highest = max(highest, live)
    return highest


def nf4(elements: int) -> int:
    """Two weights a byte, an fp32 maximum for every 64, and the table of the 16 values."""
    return elements // 2 + 4 * math.ceil(elements / 64) + 64


def nf4_double(elements: int) -> int:
    """Maxima in a byte, an fp32 maximum of theirs for every 256, their mean, their own table of 256."""
    blocks = math.ceil(elements / 64)
    return elements // 2 + blocks + 4 * math.ceil(blocks / 256) + 4 + 64 + 1024


def int8(elements: int, rows: int) -> int:
    """A byte a weight and an fp32 scale a row."""
    return elements + 4 * rows


@pytest.mark.parametrize(
    ("how", "formula"),
    [
        ("nf4", lambda rows, columns: nf4(rows * columns)),
        ("nf4-double", lambda rows, columns: nf4_double(rows * columns)),
        ("int8", lambda rows, columns: int8(rows * columns, rows)),
    ],
)
def test_a_layer_takes_what_its_formula_says(how: Quantize, formula: Callable[[int, int], int]) -> None:
    found = traced(quantize=how, lora=LORA, precision="bf16")
    for name, rows, columns in (("0.mlp.up_proj", HIDDEN, WIDTH), ("1.self_attn.k_proj", WIDTH, WIDTH)):
        assert sum(each.nbytes for each in parameters(found, f"{name}.weight")) == formula(rows, columns)


def test_the_head_is_left_as_it_is() -> None:
    found = traced(quantize="nf4", mode="inference", precision="bf16")
    assert [each.nbytes for each in parameters(found, "lm_head")] == [2 * VOCABULARY * WIDTH]
    tied = traced(lambda: llama(tie_word_embeddings=True), quantize="nf4", mode="inference", precision="bf16")
    assert [each.nbytes for each in parameters(tied, "embed_tokens")] == [2 * VOCABULARY * WIDTH]


def test_transformers_itself_converts_the_same_layers() -> None:
    t5 = transformers.T5Config(vocab_size=50, d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4)
    gpt2 = transformers.GPT2Config(vocab_size=50, n_embd=64, n_layer=1, n_head=4)
    bert = transformers.BertConfig(
        vocab_size=50, hidden_size=64, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64
    )
    models: tuple[Callable[[], nn.Module], ...] = (
        llama,
        lambda: transformers.T5ForConditionalGeneration(t5),
        lambda: transformers.GPT2LMHeadModel(gpt2),
        lambda: transformers.BertForSequenceClassification(bert),
    )
    for make in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = make()
            kept = quantizers.HfQuantizer.get_modules_to_not_convert(theirs, None, theirs._keep_in_fp32_modules)
            options = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
            of_transformers.replace_with_bnb_linear(theirs, kept, options)
        converted = {name for name, each in theirs.named_modules() if isinstance(each, bnb.nn.Linear4bit)}
        batch = lambda _: {"input_ids": torch.zeros(1, 8, dtype=torch.int64)}  # noqa: E731
        if "T5" in type(theirs).__name__:
            batch = lambda _: dict.fromkeys(("input_ids", "decoder_input_ids"), torch.zeros(1, 8, dtype=torch.int64))  # noqa: E731
        found = traced(make, batch, quantize="nf4", mode="inference")
        ours = {each.name.removesuffix(".weight.quant_state.absmax") for each in parameters(found, ".absmax")}
        assert ours == converted


@pytest.mark.parametrize(("how", "checkpoint"), [("nf4-double", "full"), ("int8", "none")])
def test_it_runs_as_a_program_that_does_it_by_hand(how: Quantize, checkpoint: str) -> None:
    def base() -> nn.Module:
        model = llama()
        if checkpoint == "full":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model

    def by_hand() -> nn.Module:
        model: Any = base().to(torch.bfloat16)
        for name, layer in list(model.named_modules()):
            if type(layer) is not nn.Linear or name == "lm_head":
                continue
            sizes = (layer.in_features, layer.out_features, False)
            packed = (
                bnb.nn.Linear8bitLt(*sizes, has_fp16_weights=False, threshold=6.0)
                if how == "int8"
                else bnb.nn.Linear4bit(
                    *sizes, torch.bfloat16, compress_statistics=how == "nf4-double", quant_type="nf4"
                )
            )
            model.set_submodule(name, packed.to(torch.bfloat16).requires_grad_(False))
        model.cuda()
        model.is_loaded_in_8bit, model.is_loaded_in_4bit = how == "int8", how != "int8"
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))

    def peaks(found: Trace) -> tuple[int, int, int]:
        return peak(found), found.model.parameters, found.model.trainable_parameters

    option = traced(base, quantize=how, lora=LORA, precision="bf16", checkpoint=checkpoint)
    assert peaks(option) == peaks(traced(by_hand))


def test_what_is_not_quantised_is_cast_to_fp32_unless_told_otherwise() -> None:
    prepared, left = (
        traced(quantize="nf4", lora=Lora(rank=4, prepare=prepare), precision="bf16") for prepare in (True, False)
    )
    assert [each.nbytes for each in parameters(prepared, "embed_tokens")] == [4 * VOCABULARY * WIDTH]
    assert [each.nbytes for each in parameters(left, "embed_tokens")] == [2 * VOCABULARY * WIDTH]
    assert any("prepare_model_for_kbit_training" in said for said in prepared.assumptions)
    assert not any("prepare_model_for_kbit_training" in said for said in left.assumptions)


def test_backward_dequantises_into_the_compute_dtype_and_gives_it_back() -> None:
    # More tokens than MatMul4Bit multiplies without dequantising; up_proj alone has this many elements.
    wide = 5 * WIDTH
    batch = lambda size: {"input_ids": torch.zeros(64, 16, dtype=torch.int64)} | tokens(size=64)  # noqa: E731
    found = traced(lambda: llama(intermediate_size=wide), batch, quantize="nf4", lora=LORA, precision="bf16")
    copies = [
        each
        for each in found.storages
        if each.nbytes == 2 * wide * WIDTH and each.role == "intermediate" and found.ops[each.birth].phase == "backward"
    ]
    freed = {event.storage for event in found.events if event.action == "free"}
    # Up, gate and down of two layers, in two steps or more.
    assert len(copies) >= 3 * 2 * 2
    assert all(each.id in freed for each in copies)


class Mixed(nn.Module):
    """A user's own frozen backbone with a head that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(128, 256).requires_grad_(requires_grad=False)
        self.head = nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


def mixed(**options: Any) -> Trace:
    loss = lambda output, _: output.float().sum()  # noqa: E731
    return traced(Mixed, lambda size: torch.zeros(size, 128), loss=loss, **options)


def test_only_frozen_layers_are_quantised_in_training() -> None:
    found = mixed(quantize="nf4")
    assert sum(each.nbytes for each in parameters(found, "backbone.weight")) == nf4(128 * 256)
    assert [each.nbytes for each in parameters(found, "head.weight")] == [4 * 128 * 256]


def test_all_are_quantised_outside_training() -> None:
    found = mixed(quantize="int8", mode="inference", precision="fp16")
    assert sum(each.nbytes for each in parameters(found, "head.weight")) == int8(128 * 256, rows=128)


def test_training_quantised_weights_is_refused() -> None:
    with pytest.raises(UsageError, match="no frozen linear layer") as error:
        traced(quantize="nf4", precision="bf16")
    assert "--lora" in str(error.value.hint)


def test_a_model_without_linear_layers_is_refused() -> None:
    with pytest.raises(UsageError, match="no linear layer"):
        traced(lambda: nn.Conv1d(4, 4, 1), lambda size: torch.zeros(size, 4, 8), quantize="nf4", mode="inference")


def test_the_cpu_is_refused() -> None:
    with pytest.raises(UsageError, match="GPUs alone"):
        mixed(quantize="nf4", device=DeviceTraits(kind="cpu"))


def test_without_bitsandbytes_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else find(name))
    with pytest.raises(UsageError, match="needs bitsandbytes") as error:
        mixed(quantize="nf4")
    assert error.value.hint == "pip install 'memplan[adapters]'"


@pytest.mark.parametrize("how", ["nf4", "nf4-double", "int8"])
def test_packed_weights_count_as_the_numbers_that_they_stand_for(how: Quantize) -> None:
    plain, packed = traced(mode="inference"), traced(mode="inference", quantize=how)
    assert packed.model.parameters == plain.model.parameters
