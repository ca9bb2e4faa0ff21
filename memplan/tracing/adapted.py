"""What ``--quantize``, ``--lora``, ``--float8`` and ``--loss-chunks`` make of a model, in the order of programs."""

import torch

from memplan.errors import UsageError
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.tracing import adapters, chunked_loss, float8, precision
from memplan.tracing.quantize import quantize
from memplan.tracing.surroundings import Surroundings


def adapt(model: torch.nn.Module, source: ModelSource, spec: JobSpec, surroundings: Surroundings) -> torch.nn.Module:
    """Quantise frozen weights, freeze the rest and add adapters, cut the loss into chunks.

    Args:
        model: The model in the job's precision; changed in place.
        source: Where it came from.
        spec: The job.
        surroundings: Told what was done.

    Returns:
        The model.

    Raises:
        UsageError: A library that is needed is not installed, or the options do not fit the model or the device.
    """
    trains = spec.mode == "train"
    if spec.quantize != "none":
        if surroundings.kind != "cuda":
            raise UsageError("--quantize is traced for GPUs alone", where="--quantize", hint="give the --gpu of a GPU")
        dtype = precision.compute_dtype(spec.precision) or next(model.parameters()).dtype
        frozen_only = trains and spec.lora is None
        count = quantize(model, spec.quantize, compute_dtype=dtype, frozen_only=frozen_only)
        surroundings.assume(f"bitsandbytes holds the weights of {count} linear layers as {spec.quantize}")
    if spec.lora is not None:
        prepared = adapters.is_prepared(model) and spec.lora.prepare and trains
        checkpoints = trains and spec.checkpoint == "full"
        model = adapters.add_adapters(model, spec.lora, trains=trains, checkpoints=checkpoints)
        surroundings.assume(adapters.described(model, spec.lora))
        if prepared:
            surroundings.assume(PREPARED)
    if spec.float8 != "none":
        if not trains:
            raise UsageError("torchao's layers here are those of training", where="--float8", hint="use --mode train")
        surroundings.assume(float8.described(float8.to_float8(model, spec.float8), spec.float8))
    if trains and spec.loss_chunks > 1:
        if spec.parallel.pipeline > 1:
            what = "--loss-chunks puts the loss into the model, of which pipeline stages are cut"
            raise UsageError(what, where="--loss-chunks", hint="leave out pp, or --loss-chunks")
        if source.loss is not None:
            raise UsageError("--loss-chunks would take the logits from the target's loss()", hint="chunk it there")
        chunked_loss.chunk_loss(model, spec.loss_chunks)
        surroundings.assume(chunked_loss.described(spec.loss_chunks))
    return model


PREPARED = "weights that are not quantised are cast to fp32, as peft's prepare_model_for_kbit_training does"
