"""torchtitan's training of January 2025: train.py, parallelisms/parallelize_llama.py and optimizer.py, as one step."""

import importlib
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

from memplan.job.parallel import Parallel
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.tracing.sharding.materialise import on_meta
from published.torchtitan.llama import LAYERS, Transformer
from published.torchtitan.recipes import Recipe

Batch = tuple[torch.Tensor, torch.Tensor]
FLOAT8 = "torchao.prototype.float8nocompile.float8nocompile_linear_utils"
"""Where torchao keeps the swap of linear layers."""


def job(recipe: Recipe) -> JobSpec:
    """A recipe as memplan takes it. Precision is the policy's, so the job itself stays fp32."""
    return JobSpec(
        target=FileTarget(path=Path(__file__)),
        batch_size=recipe.batch,
        seq_len=recipe.length,
        parallel=Parallel(data="fsdp2", shards=recipe.ranks),
    )


def source(recipe: Recipe) -> ModelSource:
    """What ``main`` builds, and its loop's body."""
    return ModelSource(
        model=partial(model, recipe),
        batch=lambda *_: batch(recipe),
        optimizer=optimizer,
        train_step=train_step,
        parallelize=partial(parallelize, recipe),
    )


def model(recipe: Recipe) -> nn.Module:
    """``model_cls.from_model_args``, then the linear layers swapped, as pull request 778 did."""
    made = Transformer(recipe.length)
    if recipe.float8:
        warnings.simplefilter("ignore")
        swap = importlib.import_module(FLOAT8).convert_to_float8_nocompile_training
        swap(
            made,
            module_filter_fn=lambda _, name: name != "output",
            no_precompute_for_backward=not recipe.precompute,
        )
    return made


def batch(recipe: Recipe) -> Batch:
    """Tokens and labels, two tensors of 64-bit integers."""
    shape = recipe.batch, recipe.length
    return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """``build_optimizers`` with ``fused = False``, its default then."""
    return torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=False, foreach=True)


def parallelize(recipe: Recipe, whole: nn.Module, mesh: DeviceMesh) -> None:
    """``parallelize_llama`` on the meta device, then ``to_empty(device="cuda")``."""
    with on_meta(whole, "cuda"):
        checkpoint(recipe, whole)
        shard(whole, mesh)


def checkpoint(recipe: Recipe, whole: nn.Module) -> None:
    """``apply_ac``: every n-th layer counted from one, without the state of random numbers."""
    every = {"none": LAYERS + 1, "2": 2, "full": 1}[recipe.checkpoint]
    layers = whole.get_submodule("layers")
    for number, (name, layer) in enumerate(list(layers.named_children()), 1):
        if number % every == 0:
            layers.register_module(name, checkpoint_wrapper(layer, preserve_rng_state=False))


def shard(whole: nn.Module, mesh: DeviceMesh) -> None:
    """``apply_fsdp``: the last layer stays gathered, since backward wants it at once."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for name, layer in whole.get_submodule("layers").named_children():
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=int(name) < LAYERS - 1)
    fully_shard(whole, mesh=mesh, mp_policy=policy, reshard_after_forward=True)


def train_step(whole: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
    """One turn of ``train.py``'s loop."""
    tokens, labels = batch
    optimizer.zero_grad()
    logits = whole(tokens)
    loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
    del logits
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0, foreach=True)
    optimizer.step()
    return loss.detach()
