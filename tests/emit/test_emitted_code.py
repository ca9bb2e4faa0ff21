"""Emitted code is run: one training step, two real processes, torchtitan's own configuration."""

import importlib
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.tensor import DTensor

from memplan.emit.formats import emit
from memplan.job.adapters import Lora
from memplan.job.parallel import parse_parallel
from memplan.job.setup_file import Setup
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan
from tests.emit.setups import setup

WIDTH = 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return x + torch.tanh(self.inner(x))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(*(Block() for _ in range(3))), nn.Linear(WIDTH, 1))


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).float().square().mean()


def batches(count: int, seed: int = 1) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(4, WIDTH) for _ in range(count)]


def load(made: Setup, to: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the emitted files define."""
    for name, content in emit(made, to).files.items():
        (folder / name).write_text(content, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "checkpoint_plan", raising=False)
    space: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(next(iter(emit(made, to).files.values())), "emitted.py", "exec"), space)
    return SimpleNamespace(**space)


def by_hand(optimizer: type[torch.optim.Optimizer], norm: float | None, accumulate: int, **options: Any) -> nn.Module:
    """Two steps of the loop, written down again."""
    model = net()
    made = optimizer(model.parameters(), lr=0.01, **options)
    inputs = batches(2 * accumulate)
    for step in range(2):
        for batch in inputs[step * accumulate : (step + 1) * accumulate]:
            (loss(model, batch) / accumulate).backward()
        if norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        made.step()
        made.zero_grad()
    return model


@pytest.mark.parametrize(
    ("changes", "optimizer", "options"),
    [
        ({"optimizer": "adamw"}, torch.optim.AdamW, {}),
        ({"optimizer": None}, torch.optim.AdamW, {}),
        ({"optimizer": "adam", "optimizer_impl": "loop"}, torch.optim.Adam, {"foreach": False}),
        ({"optimizer": "sgd-momentum", "clip_grad_norm": 0.01}, torch.optim.SGD, {"momentum": 0.9}),
        ({"optimizer": "adagrad"}, torch.optim.Adagrad, {}),
        ({"optimizer": "sgd", "grad_accum": 3}, torch.optim.SGD, {}),  # The others do not mind how large gradients are.
        ({"optimizer": "adafactor", "checkpoint": "full"}, torch.optim.Adafactor, {}),
        ({"optimizer": "adamw", "optimizer_in_backward": True}, torch.optim.AdamW, {}),
        ({"optimizer": "sgd", "offload_activations": True, "checkpoint": "full"}, torch.optim.SGD, {}),
    ],
)
def test_plain_torch_trains_as_the_setup_says(
    changes: dict[str, Any],
    optimizer: type[torch.optim.Optimizer],
    options: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emitted = load(setup(precision="fp32", **changes), "torch", tmp_path, monkeypatch)
    count = changes.get("grad_accum", 1)
    inputs = batches(2 * count)
    steps = [inputs[step * count : (step + 1) * count] for step in range(2)]
    model = emitted.set_up(net(), device="cpu")
    emitted.train(model, emitted.make_optimizer(model, 0.01), steps, loss, device="cpu")
    expected = by_hand(optimizer, changes.get("clip_grad_norm"), count, **options)
    assert [block.runs for block in model[1]] == [2 * count * (2 if changes.get("checkpoint") else 1)] * 3
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, expected.get_parameter(name), msg=name)


@pytest.mark.parametrize(("precision", "weights"), [("bf16", torch.bfloat16), ("bf16-mixed", torch.float32)])
def test_plain_torch_has_the_precision(
    precision: str, weights: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted = load(setup(precision=precision), "torch", tmp_path, monkeypatch)
    model = emitted.set_up(net(), device="cpu")
    seen = []
    model[1][0].inner.register_forward_hook(lambda *found: seen.append(found[2].dtype))
    inputs = [batch.to(weights) for batch in batches(1)]
    emitted.train(model, emitted.make_optimizer(model, 0.01), [inputs], loss, device="cpu")
    assert {parameter.dtype for parameter in model.parameters()} == {weights}
    assert seen == [torch.bfloat16]


def test_plain_torch_applies_a_checkpoint_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = CheckpointPlan(blocks=(BlockPlan(module="1.1", action=Action.CHECKPOINT),))
    write_plan(plan, tmp_path / "plan.json")
    made = setup(precision="fp32", checkpoint=str(tmp_path / "plan.json"))
    emitted = load(made, "torch", tmp_path, monkeypatch)
    model = emitted.set_up(net(), device="cpu")
    emitted.train(model, emitted.make_optimizer(model, 0.01), [batches(1)], loss, device="cpu")
    assert [block.runs for block in model[1]] == [1, 2, 1]


def test_adapters_of_a_half_precision_model_are_fp32_as_they_were_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    made = setup(precision="bf16", lora=Lora(rank=2, alpha=4, targets=("inner",)))
    model = load(made, "torch", tmp_path, monkeypatch).set_up(net(), device="cpu")
    dtypes = {parameter.requires_grad: parameter.dtype for parameter in model.parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


@pytest.mark.parametrize("checkpoint", ["none", "full"])
def test_a_model_of_transformers_keeps_no_cache_and_checkpoints_by_its_own_switch(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=1
    )
    emitted = load(setup(precision="fp32", checkpoint=checkpoint), "torch", tmp_path, monkeypatch)
    model = emitted.set_up(transformers.LlamaForCausalLM(config).train(), device="cpu")
    assert model(torch.zeros(1, 4, dtype=torch.long)).past_key_values is None
    assert model.is_activation_checkpointing is (checkpoint == "full")


def test_logits_in_parts_have_the_loss_and_the_gradients_of_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.randint(16, (3, 5))
    labels = tokens.masked_fill(tokens == tokens[0, 1], -100)
    expected = model(input_ids=tokens, labels=labels).loss
    expected.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    parts = []
    emitted = load(setup(precision="fp32", loss_chunks=4), "torch", tmp_path, monkeypatch).set_up(model, device="cpu")
    emitted.lm_head.register_forward_hook(lambda *found: parts.append(len(found[2])))
    found = emitted(input_ids=tokens, labels=labels).loss
    found.backward()
    assert parts[:4] == [4, 4, 4, 3]
    torch.testing.assert_close(found, expected)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], msg=name)


def test_plain_torch_gives_the_model_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft")
    made = setup(precision="fp32", lora=Lora(rank=2, alpha=4, targets=("inner",)))
    emitted = load(made, "torch", tmp_path, monkeypatch)
    model = emitted.set_up(net(), device="cpu")
    optimizer = emitted.make_optimizer(model, 0.01)
    assert (
        sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"]) == 3 * 2 * 2 * WIDTH
    )


def one_rank(rank: int, world: int, store: str, code: str, results: Any) -> None:
    """A process of a real group: shards a model without memory, fills it, steps it once, reports."""
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    space: dict[str, Any] = {"__name__": "emitted"}
    exec(code, space)
    with torch.device("meta"):
        empty = net()
    model = space["shard"](empty, device_type="cpu").to_empty(device="cpu")
    set_model_state_dict(model, net().state_dict(), options=StateDictOptions(full_state_dict=True))
    optimizer = space["make_optimizer"](model, 0.01)
    loss(model, batches(1)[0]).backward()
    optimizer.step()
    whole = {name: parameter.full_tensor() for name, parameter in model.named_parameters()}
    sharded = all(isinstance(parameter, DTensor) for parameter in model.parameters())
    local = sum(parameter.to_local().numel() for parameter in model.parameters())
    units = [type(module).__name__ for module in model.modules() if hasattr(module, "unshard")]
    if rank == 0:
        results.put(({name: value.tolist() for name, value in whole.items()}, sharded, local, units, model[1][0].runs))
    results.close()
    results.join_thread()
    distributed.barrier()
    os._exit(0)  # see tests/support/ranks.py


def run_ranks(code: str, folder: Path) -> tuple[dict[str, Any], bool, int, list[str], int]:
    """Two processes; what the first one reports."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [
        context.Process(target=one_rank, args=(rank, 2, str(folder / "store"), code, results)) for rank in range(2)
    ]
    for process in ranks:
        process.start()
    found = results.get(timeout=120)
    for process in ranks:
        process.join(timeout=60)
    assert [process.exitcode for process in ranks] == [0, 0]
    results.close()
    results.join_thread()
    return found


@pytest.mark.slow
def test_fsdp2_steps_two_processes_as_one(tmp_path: Path) -> None:
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    if not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("this torch's fully_shard does not run on CPUs")
    made = setup(precision="fp32", parallel=parse_parallel("fsdp=2"), checkpoint="full")
    [code] = emit(made, "fsdp2").files.values()
    whole, sharded, local, units, seen = run_ranks(code, tmp_path)
    expected = net()
    optimizer = torch.optim.AdamW(expected.parameters(), lr=0.01)
    loss(expected, batches(1)[0]).backward()
    optimizer.step()
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(torch.tensor(whole[name]), parameter.detach(), msg=name)
    assert sharded
    assert local <= sum(parameter.numel() for parameter in expected.parameters()) / 2 + WIDTH
    assert len([name for name in units if "Block" in name]) == 3
    assert len(units) == 4
    assert seen == 2


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-mixed"])
def test_torchtitan_takes_the_function(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torchtitan.trainer", exc_type=ImportError)
        registry = importlib.import_module("torchtitan.models.llama3.config_registry")
        checkpointing = importlib.import_module("torchtitan.distributed.activation_checkpoint")
    mesh = parse_parallel("hsdp=2x4,tp=2,cp=2,pp=2,reshard=no,offload=yes")
    made = setup(
        precision=precision, parallel=mesh, checkpoint="full", grad_accum=3, clip_grad_norm=0.5, optimizer_impl="fused"
    )
    config = load(made, "torchtitan", tmp_path, monkeypatch).configure(registry.llama3_debugmodel())
    training, parallelism = config.training, config.parallelism
    assert (training.local_batch_size, training.global_batch_size, training.seq_len) == (4, 4 * 3 * 8, 2048)
    assert (training.max_norm, training.enable_cpu_offload, training.disable_cuda_graphs) == (0.5, True, True)
    assert training.dtype == ("bfloat16" if precision == "bf16" else "float32")
    assert training.mixed_precision_param == ("float32" if precision == "fp32" else "bfloat16")
    degrees = (
        parallelism.data_parallel_replicate_degree, parallelism.data_parallel_shard_degree,
        parallelism.tensor_parallel_degree, parallelism.context_parallel_degree, parallelism.pipeline_parallel_degree,
    )  # fmt: skip
    assert degrees == (2, 4, 2, 2, 2)
    assert (parallelism.fsdp_reshard_after_forward, parallelism.pipeline_parallel_schedule) == ("never", "1F1B")
    assert isinstance(config.activation_checkpoint, checkpointing.FullAC.Config)
    assert config.optimizer.implementation == "fused"
    wrapper = importlib.import_module("torchtitan.components.loss").ChunkedLossWrapper
    assert not isinstance(config.loss, wrapper.Config)
    made = setup(precision=precision, parallel=mesh, loss_chunks=4)
    parts = load(made, "torchtitan", tmp_path, monkeypatch).configure(registry.llama3_debugmodel()).loss
    assert (type(parts), parts.num_chunks, type(parts.loss_fn)) == (wrapper.Config, 4, type(config.loss))
