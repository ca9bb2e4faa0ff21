"""What torchtune's recipes do, with its own models and losses, on batches that are made here."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from cuda_streams.programs import AMPERE, recording

from memplan.estimate.local import measure
from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import Compile, FileTarget, JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.trace.records import DeviceTraits
from memplan.trace.run import trace_job
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


def packed() -> Prediction:
    """full_finetune_single_device, packed: eager but for its attention kernel, logits in one piece."""
    return _predicted("eager")


def compiled() -> Prediction:
    """The same with ``compile: True``: each layer and the loss are compiled."""
    return _predicted("inductor")


def _predicted(compile_: Compile) -> Prediction:
    profile = load_profile("a100-80g")
    spec = JobSpec(target=FileTarget(path=Path(__file__)), batch_size=BATCH, seq_len=LENGTH, compile=compile_)
    trace = trace_job(_full_finetune, spec, DeviceTraits.of(profile))
    memory = measure(build_lifetimes(trace), profile).memory
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


def _full_finetune() -> ModelSource:
    def model() -> Any:
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device("cuda"):
                made: Any = llama3_2_3b()
        finally:
            torch.set_default_dtype(former)
        # ``training.compile_model`` and ``compile_loss``; nothing happens where compiled code is traced as eager code.
        for layer in made.layers:
            layer.compile(backend="inductor")
        loss_function.compile(backend="inductor")
        return made

    loss_function = torch.nn.CrossEntropyLoss(ignore_index=-100)

    def batch(*_: object) -> tuple[torch.Tensor, ...]:
        tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long)
        return tokens, torch.zeros_like(tokens), torch.zeros_like(tokens)

    def step(model: Any, optimizer: torch.optim.Optimizer, given: tuple[torch.Tensor, ...]) -> None:
        tokens, labels, positions = given
        number = (labels != loss_function.ignore_index).sum()
        loss = _loss_step(model, loss_function, tokens, labels, positions) * number
        loss.backward()
        for parameter in model.parameters():
            parameter.grad *= 1 / number
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return ModelSource(
        model=model,
        batch=batch,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=2e-5, fused=True),
        train_step=step,
    )


def _loss_step(
    model: Any, loss_function: Any, tokens: torch.Tensor, labels: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """``_loss_step``, without the mask: see ``KERNEL``."""
    logits = model(tokens, input_pos=positions)
    ignored = torch.full((labels.shape[0], 1), loss_function.ignore_index, device=labels.device)
    labels = torch.hstack((labels[..., 1:], ignored)).reshape(-1)
    logits = logits.reshape(-1, logits.size(-1))
    loss: torch.Tensor = loss_function(logits, labels)
    # Its caller computes the gradient without them.
    del logits
    return loss
