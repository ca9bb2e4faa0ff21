"""What torchtune's recipes do, with its own models and losses, on batches that are made here."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from cuda_streams.programs import AMPERE, recording

from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import Compile, FileTarget, JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.measure.played import play_on_device
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from published.case import Prediction
from published.snapshots import window_peaks

BATCH, LENGTH = 2, 4096


def _without_datasets() -> None:
    """``datasets``, which torchtune imports for readers of data that do not run here."""
    for name in ("datasets", "datasets.distributed"):
        stand_in = ModuleType(name)
        stand_in.__spec__ = ModuleSpec(name, None)
        for member in ("load_dataset", "Dataset", "IterableDataset", "split_dataset_by_node"):
            setattr(stand_in, member, object)
        sys.modules.setdefault(name, stand_in)


_without_datasets()

from torchtune.models.llama3_2 import llama3_2_3b, lora_llama3_2_3b  # noqa: E402 - after what it imports
from torchtune.modules import TransformerSelfAttentionLayer  # noqa: E402
from torchtune.modules.loss import CEWithChunkedOutputLoss  # noqa: E402
from torchtune.training import compile_loss, compile_model, set_activation_checkpointing  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a line of the table adds to full_finetune_single_device."""

    chunked: bool = False
    """The loss is ``CEWithChunkedOutputLoss``."""
    checkpointed: bool = False
    """``enable_activation_checkpointing``."""
    in_backward: bool = False
    """``optimizer_in_bwd``."""


def packed() -> Prediction:
    """full_finetune_single_device, packed: eager but for its attention kernel, logits in one piece."""
    return _predicted("eager", Recipe())


def compiled() -> Prediction:
    """The same with ``compile: True``, which compiles the layers alone.

    The recipe means the loss as well, but throws away what ``compile_loss`` returns (release 0.4.0,
    recipes/full_finetune_single_device.py ``setup``, torchtune/training/_compile.py): only a loss in chunks, which the
    next line of the table has, is compiled in place.
    """
    return _predicted("inductor", Recipe())


def checkpointed() -> Prediction:
    """Logits in chunks, their loss compiled, and layers recomputed."""
    return _predicted("inductor", Recipe(chunked=True, checkpointed=True))


def fused_into_backward() -> Prediction:
    """The same, and each parameter updated as soon as it has its gradient."""
    return _predicted("inductor", Recipe(chunked=True, checkpointed=True, in_backward=True))


def _predicted(compile_: Compile, recipe: Recipe) -> Prediction:
    profile = load_profile("a100-80g")
    spec = JobSpec(target=FileTarget(path=Path(__file__)), batch_size=BATCH, seq_len=LENGTH, compile=compile_)
    trace = trace_job(partial(_full_finetune, recipe), spec, DeviceTraits.of(profile))
    memory = play_on_device(build_lifetimes(trace), profile).memory
    return Prediction(requested=memory.peak_requested, allocated=memory.peak_allocated, reserved=memory.peak_reserved)


def lora_model() -> Prediction:
    """lora_finetune_single_device up to the report on memory after ``_setup_model`` (3B_lora_single_device.yaml)."""
    with recording(AMPERE) as recorder:
        recorder.recording = True
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device("cuda"):
                model = lora_llama3_2_3b(
                    lora_attn_modules=["q_proj", "v_proj", "output_proj"],
                    apply_lora_to_mlp=True,
                    lora_rank=64,
                    lora_alpha=128,
                    lora_dropout=0.0,
                )
        finally:
            torch.set_default_dtype(former)
        peaks = window_peaks(recorder, 0, len(recorder.ledger.events))
        del model
    return peaks


def _full_finetune(recipe: Recipe) -> ModelSource:
    loss_function = CEWithChunkedOutputLoss() if recipe.chunked else torch.nn.CrossEntropyLoss(ignore_index=-100)

    def model() -> Any:
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device("cuda"):
                made: Any = llama3_2_3b()
        finally:
            torch.set_default_dtype(former)
        # Nothing happens in these two where compiled code is traced as eager code.
        compile_model(made, verbose=False)
        compile_loss(loss_function, verbose=False)
        if recipe.checkpointed:
            set_activation_checkpointing(made, auto_wrap_policy={TransformerSelfAttentionLayer})
        if recipe.chunked:
            made.set_num_output_chunks(loss_function.num_output_chunks)
        return made

    def optimizer(parameters: Iterable[torch.nn.Parameter]) -> Any:
        if not recipe.in_backward:
            return torch.optim.AdamW(parameters, lr=2e-5, fused=True)
        for parameter in parameters:
            _update_in_backward(parameter, torch.optim.AdamW([parameter], lr=2e-5, fused=True))
        return None

    return ModelSource(
        model=model,
        batch=_batch,
        optimizer=optimizer,
        train_step=lambda model, optimizer, batch: _step(model, loss_function, optimizer, batch),
    )


def _update_in_backward(parameter: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
    """``register_optim_in_bwd_hooks``."""

    def update(_: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    parameter.register_post_accumulate_grad_hook(update)


def _batch(*_: object) -> tuple[torch.Tensor, ...]:
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    return tokens, torch.zeros_like(tokens), torch.zeros_like(tokens)


def _step(
    model: Any, loss_function: Any, optimizer: torch.optim.Optimizer | None, batch: tuple[torch.Tensor, ...]
) -> None:
    """One turn of ``train``."""
    tokens, labels, positions = batch
    number = (labels != loss_function.ignore_index).sum()
    loss = _loss_step(model, loss_function, tokens, labels, positions) * number
    loss.backward()  # type: ignore[no-untyped-call]
    if optimizer is not None:
        for parameter in model.parameters():
            parameter.grad *= 1 / number
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _loss_step(
    model: Any, loss_function: Any, tokens: torch.Tensor, labels: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """``_loss_step``, without the mask: see ``KERNEL``."""
    logits = model(tokens, input_pos=positions)
    ignored = torch.full((labels.shape[0], 1), loss_function.ignore_index, device=labels.device)
    labels = torch.hstack((labels[..., 1:], ignored))
    if not isinstance(logits, list):
        labels = labels.reshape(-1)
        logits = logits.reshape(-1, logits.size(-1))
    loss: torch.Tensor = loss_function(logits, labels)
    # Its caller computes the gradient without them.
    del logits
    return loss
