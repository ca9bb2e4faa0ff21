"""``--lora``: what peft makes of a model, against programs that call peft themselves and against the closed form."""

import importlib.util
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from memplan.errors import EstimateError, UsageError
from memplan.job.adapters import Lora, parse_lora
from memplan.tracing.records import DeviceTraits, Trace
from tests.support.libraries import library
from tests.tracing.jobs import source, trace

peft, transformers = library("peft"), library("transformers")

CUDA = DeviceTraits(kind="cuda")
WIDTH, HIDDEN = 32, 48


class Net(nn.Module):
    """Takes a tuple's first item alone, which a wrapper with ``*args`` would not."""

    def __init__(self, width: int = WIDTH, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.norm(self.up(x))))


def llama(**changes: Any) -> nn.Module:
    sizes: dict[str, Any] = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes | heads | changes))


def tokens(size: int) -> dict[str, torch.Tensor]:
    ids = torch.zeros(size, 16, dtype=torch.int64)
    return {"input_ids": ids, "labels": ids}


def pair(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(size, WIDTH), torch.zeros(size, WIDTH)


def of_net(model: Callable[[], nn.Module] = Net, **options: Any) -> Trace:
    device = options.pop("device", CUDA)
    job = source(model, pair, loss=lambda output, batch: nn.functional.mse_loss(output.float(), batch[1].float()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(job, device, **options)


def of_llama(model: Callable[[], nn.Module] = llama, **options: Any) -> Trace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return trace(source(model, tokens), CUDA, **options)


def stream(found: Trace) -> list[tuple[str, int]]:
    """Allocations and frees of the steps, in order and in bytes, but for the host's."""
    begin = found.steps[0].first_event
    storages = found.storages
    return [
        (event.action, storages[event.storage].nbytes)
        for event in found.events[begin:]
        if storages[event.storage].place == "device"
    ]


@settings(max_examples=5, deadline=None)
@given(rank=st.integers(1, 20), width=st.integers(2, 40), hidden=st.integers(2, 40))
def test_adapters_have_rank_times_in_and_out_parameters(rank: int, width: int, hidden: int) -> None:
    job = source(lambda: Net(width, hidden), lambda _: torch.zeros(2, width), loss=lambda output, _: output.sum())
    found = trace(job, CUDA, lora=Lora(rank=rank))
    assert found.model.trainable_parameters == 2 * rank * (width + hidden)
    total = 2 * width * hidden + width + 3 * hidden
    assert found.model.parameters == total + found.model.trainable_parameters


@pytest.mark.parametrize(
    ("text", "precision"),
    [("r=4", "bf16"), ("r=4,dropout=0.1", "fp32"), ("r=4,targets=up", "bf16"), ("r=4,dora=yes", "bf16")],
)
def test_a_plain_module_runs_as_when_its_program_calls_peft(text: str, precision: Any) -> None:
    lora = parse_lora(text)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    targets: Any = "all-linear" if lora.targets == ("all-linear",) else list(lora.targets)
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=targets, lora_dropout=lora.dropout, use_dora=lora.dora)

    def adapted() -> nn.Module:
        model = peft.get_peft_model(Net().to(dtype), config)

        def forward(x: torch.Tensor) -> torch.Tensor:
            return model.base_model(x)

        # The wrapper would be given the targets, too.
        model.forward = forward
        return model

    job = source(
        adapted,
        lambda size: tuple(each.to(dtype) for each in pair(size)),
        loss=lambda output, batch: nn.functional.mse_loss(output.float(), batch[1].float()),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_hand = trace(job, CUDA)
    assert stream(of_net(lora=lora, precision=precision)) == stream(by_hand)


@pytest.mark.parametrize("checkpoint", ["none", "full"])
def test_a_transformers_model_runs_as_when_its_program_calls_peft(checkpoint: str) -> None:
    def adapted() -> nn.Module:
        model = llama().to(torch.bfloat16)
        if checkpoint == "full":
            model.gradient_checkpointing_enable()
        return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))

    def base() -> nn.Module:
        model = llama()
        if checkpoint == "full":
            model.gradient_checkpointing_enable()
        return model

    lora = Lora(rank=4, targets=("q_proj", "v_proj"))
    found = of_llama(base, lora=lora, precision="bf16", checkpoint=checkpoint)
    assert stream(found) == stream(of_llama(adapted))
    assert any("LoRA of rank 4 beside 4 layers, in float32" in said for said in found.assumptions)


def test_all_linear_leaves_the_output_head_alone() -> None:
    found = of_llama(lora=Lora(rank=2))
    adapters = {each.name for each in found.storages if "lora_A" in each.name and each.role == "parameter"}
    assert len(adapters) == 7 * 2
    assert not any("lm_head" in name for name in adapters)


def test_only_adapters_have_gradients_and_states() -> None:
    found = of_net(lora=Lora(rank=4))
    expected = {4 * 4 * WIDTH, 4 * 4 * HIDDEN}
    states = [each for each in found.storages if each.role == "optimizer_state" and each.nbytes > 4]
    assert {each.nbytes for each in states} == expected
    assert sum(each.nbytes for each in states) == 2 * 4 * found.model.trainable_parameters


def test_names_are_the_models_own() -> None:
    names = {each.name for each in of_net(lora=Lora(rank=4)).storages if each.role == "parameter"}
    assert {"up.base_layer.weight", "up.lora_A.default.weight", "norm.weight"} <= names


def test_a_block_of_a_plain_module_is_checkpointed_with_its_adapters() -> None:
    def model() -> nn.Module:
        return nn.Sequential(*(Net() for _ in range(3)))

    plain, checkpointed = (of_net(model, lora=Lora(rank=4), checkpoint=choice) for choice in ("none", "full"))
    assert len(checkpointed.ops) > len(plain.ops)
    assert checkpointed.model.trainable_parameters == plain.model.trainable_parameters


@pytest.mark.parametrize("mode", ["inference", "generate"])
def test_nothing_is_trained_outside_training(mode: Any) -> None:
    found = of_llama(lora=Lora(rank=2), mode=mode, max_new_tokens=2)
    assert found.model.trainable_parameters == 0
    assert {op.phase for op in found.ops} == {"forward"}


def test_a_saved_configuration_trains_as_it_was_saved(tmp_path: Path) -> None:
    config = peft.LoraConfig(
        r=4, target_modules=["q_proj"], rank_pattern={"layers.0.self_attn.q_proj": 9}, init_lora_weights="pissa"
    )
    config.inference_mode = True
    config.save_pretrained(tmp_path)
    lora = parse_lora(str(tmp_path / "adapter_config.json"))
    assert of_llama(lora=lora).model.trainable_parameters == (4 + 9) * (32 + 32)


def test_settings_of_other_releases_of_peft_do_not_stop_it(tmp_path: Path) -> None:
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"], "of_tomorrow": 1}))
    assert of_llama(lora=parse_lora(str(file))).model.trainable_parameters == 2 * 4 * (32 + 32)


def test_targets_that_the_model_lacks_are_named() -> None:
    with pytest.raises(UsageError, match="q_proj") as error:
        of_net(lora=Lora(targets=("q_proj",)))
    assert error.value.where is not None


def test_a_model_that_peft_cannot_work_on_is_peft_s_error() -> None:
    """Not one of ``--lora`` alone: ``--explain`` asks every job what adapters would save."""
    with pytest.raises(EstimateError, match=r"peft raised AttributeError.*parametrizations"):
        of_net(lambda: nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH))), lora=Lora())


def test_without_peft_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else find(name))
    with pytest.raises(UsageError, match="needs peft") as error:
        of_net(lora=Lora())
    assert error.value.hint == "pip install 'memplan[adapters]'"


def test_the_cpu_trains_adapters_too() -> None:
    found = of_net(lora=Lora(rank=4), device=DeviceTraits(kind="cpu"))
    assert found.model.trainable_parameters == 2 * 4 * (WIDTH + HIDDEN)
