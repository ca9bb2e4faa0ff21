"""What Megatron-LM's ``pretrain_gpt.py`` and ``pretrain_t5.py`` do with megatron-core, in one process of eight."""

import os
import warnings
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.measure.allocator import given_policy
from memplan.measure.played import play_on_device
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from published.case import Prediction
from published.megatron import configuration
from published.megatron.batches import gpt_batches, gpt_step, t5_batches, t5_step
from published.megatron.recipes import RANKS, Recipe
from published.megatron.stand_ins import install


class _Unbuilt(torch.nn.Module):
    """Stands for the model until the first step builds it, so that what it is built from is recorded."""

    parts: Any = None


def predicted(recipe: Recipe) -> Prediction:
    """Peaks of a recipe's last rank. ``torch.compile`` is asked for by megatron-core's fused functions alone."""
    # megatron-core warns of each package that it does without.
    warnings.simplefilter("ignore")
    # The tests' own, which torch, megatron-core and Transformer Engine ask for.
    repeated = recipe.options.get("deterministic_mode", True)
    os.environ["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] = "0" if repeated else "1"
    if repeated:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(mode=True)
    profile = load_profile(recipe.gpu)
    spec = JobSpec(
        target=FileTarget(path=Path(__file__)),
        batch_size=recipe.size.micro_batch,
        compile="inductor",
        data_dependent=recipe.routing,
    )
    source = ModelSource(
        model=_Unbuilt, batch=lambda *_: (), optimizer=lambda _: _, train_step=partial(_train_step, recipe)
    )
    trace = trace_job(lambda: source, spec, DeviceTraits.of(profile))
    memory = play_on_device(build_lifetimes(trace), profile, given_policy(recipe.alloc_conf)).memory
    return Prediction(requested=memory.peak_requested, allocated=memory.peak_allocated, reserved=memory.peak_reserved)


def _train_step(recipe: Recipe, holder: _Unbuilt, _: object, __: object) -> Any:
    """megatron/training/training.py ``train_step``."""
    if holder.parts is None:
        holder.parts = _built(recipe)
    from megatron.core.pipeline_parallel import get_forward_backward_func

    chunks, optimizer = holder.parts
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    gpt = recipe.family == "gpt"
    batches = (gpt_batches if gpt else t5_batches)(recipe)
    losses = get_forward_backward_func()(
        forward_step_func=gpt_step if gpt else partial(t5_step, recipe),
        data_iterator=batches if len(chunks) == 1 else list(repeat(batches, len(chunks))),
        model=chunks,
        num_microbatches=recipe.micro_batches,
        seq_length=recipe.size.length if gpt else configuration.ENCODER_LENGTH,
        micro_batch_size=recipe.size.micro_batch,
        decoder_seq_length=recipe.size.length if gpt else configuration.DECODER_LENGTH,
        forward_only=False,
    )
    optimizer.step()
    return losses


def _built(recipe: Recipe) -> tuple[Any, Any]:
    """``setup_model_and_optimizer``."""
    install(scatters=recipe.scatters)
    _join(recipe)
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.optimizer import get_megatron_optimizer

    config = configuration.model_configuration(recipe)
    chunks = _wrapped(recipe, config)
    options = configuration.optimizer_configuration(recipe, config.params_dtype)
    optimizer = get_megatron_optimizer(options, chunks, use_gloo_process_groups=False)
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if recipe.overlap_reduce:
        config.no_sync_func = [chunk.no_sync for chunk in chunks]
        # ``--no-align-grad-reduce`` is not given.
        config.grad_sync_func = [chunk.start_grad_sync for chunk in chunks] if recipe.chunks > 1 else None
        if recipe.chunks == 1:
            config.no_sync_func = config.no_sync_func[0]
    return chunks, optimizer


def _wrapped(recipe: Recipe, config: Any) -> list[Any]:
    """``get_model``."""
    from megatron.core.distributed import DistributedDataParallel
    from megatron.core.transformer.module import Float16Module

    chunks = [configuration.chunk(recipe, config, number) for number in range(recipe.chunks)]
    for chunk in chunks:
        chunk.cuda(torch.cuda.current_device())
        _hold_the_first_experts(chunk)
    chunks = [Float16Module(config, chunk) for chunk in chunks]
    ddp = configuration.parallel_configuration(recipe)
    whole = recipe.optimizer.get("overlap_param_gather_with_optimizer_step", False)
    # Gradients lie in segments of a stream of their own.
    with torch.cuda.stream(torch.cuda.Stream()):
        return [
            DistributedDataParallel(config, ddp, chunk, disable_bucketing=number > 0 or whole)
            for number, chunk in enumerate(chunks)
        ]


def _hold_the_first_experts(chunk: torch.nn.Module) -> None:
    """The first experts are memplan's busiest, and those of the rank that is traced."""
    for layer in chunk.modules():
        dispatcher: Any = getattr(layer, "token_dispatcher", None)
        if dispatcher is not None:
            dispatcher.local_expert_indices = list(range(dispatcher.num_local_experts))


def _join(recipe: Recipe) -> None:
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    torch.distributed.init_process_group("fake", rank=RANKS - 1, world_size=RANKS, store=FakeStore())
    parallel_state.initialize_model_parallel(
        recipe.tensor_parallel,
        recipe.pipeline_parallel,
        recipe.chunks if recipe.chunks > 1 else None,
        context_parallel_size=recipe.context_parallel,
        expert_model_parallel_size=recipe.expert_parallel,
        expert_tensor_parallel_size=recipe.expert_tensor_parallel,
        num_distributed_optimizer_instances=recipe.optimizer_instances,
        create_gloo_process_groups=False,
    )
    model_parallel_cuda_manual_seed(1234)
