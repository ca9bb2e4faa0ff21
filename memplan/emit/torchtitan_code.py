"""A function for torchtitan 0.3, whose configuration is Python: it changes the configuration of a model.

torchtitan captures CUDA graphs by default and clips always; the first is not what was predicted, the second cannot be
turned off.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memplan.emit import code, quote, words
from memplan.job.setup_file import Setup
from memplan.job.spec import JobSpec

FILE = "memplan_setup.py"
_PRECISION: Mapping[str, tuple[str, str]] = {
    "fp32": ("float32", "float32"),
    "bf16": ("bfloat16", "bfloat16"),
    "bf16-mixed": ("float32", "bfloat16"),
}
"""Precision → ``dtype`` and ``mixed_precision_param``."""
_OPTIMIZERS: Mapping[str, str] = {"adamw": "AdamW", "adam": "Adam"}
_IMPLEMENTATIONS: Mapping[str, str] = {"auto": "foreach", "foreach": "foreach", "fused": "fused", "loop": "for-loop"}
_SCHEDULES: Mapping[str, str] = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}


_CARRIED = frozenset({
    "batch_size", "seq_len", "grad_accum", "parallel", "optimizer", "optimizer_impl", "compile", "precision",
    "clip_grad_norm", "checkpoint", "loss_chunks",
})  # fmt: skip
_MAX_NORM = 1.0
"""torchtitan's own (torchtitan/config/configs.py, ``TrainingConfig``)."""
_PLAIN_LOSS = '''\
def plain(loss):
    """Return the loss of one part, where the configuration makes it in parts."""
    return loss.loss_fn if isinstance(loss, ChunkedLossWrapper.Config) else loss
'''


def render(setup: Setup, head: Sequence[str]) -> Mapping[str, str]:
    """``configure(base)``."""
    return {FILE: _text(setup.job, head)}


def _as_written(job: JobSpec) -> JobSpec:
    """The job as far as torchtitan has words for it."""
    parallel = job.parallel
    return replace(
        job,
        parallel=replace(parallel, reshard=bool(parallel.reshard)),
        optimizer=job.optimizer if job.optimizer in _OPTIMIZERS else "adamw",
        precision=job.precision if job.precision in _PRECISION else "fp32",
        checkpoint="full" if job.checkpoint == "full" else "none",
        clip_grad_norm=_MAX_NORM if job.clip_grad_norm is None else job.clip_grad_norm,
    )


def _text(job: JobSpec, head: Sequence[str]) -> str:
    is_chunked = job.loss_chunks > 1
    parts = code.call("ChunkedLossWrapper.Config", ["loss_fn=plain(base.loss)", f"num_chunks={job.loss_chunks}"], 8)
    changes = {
        "training": _replaced("training", _training(job)),
        "parallelism": _replaced("parallelism", _parallelism(job)),
        "activation_checkpoint": "FullAC.Config()" if job.checkpoint == "full" else "None",
        "compile": _replaced("compile", _compile(job)),
        "optimizer": _replaced("optimizer", {"implementation": _IMPLEMENTATIONS[job.optimizer_impl]}),
        "loss": parts if is_chunked else "plain(base.loss)",
    }
    imports = ["from dataclasses import replace", "", "from torchtitan.components.loss import ChunkedLossWrapper"]
    if job.checkpoint == "full":
        imports.append("from torchtitan.distributed.activation_checkpoint import FullAC")
    imports.append("from torchtitan.trainer import Trainer")
    title = "For a config_registry.py of torchtitan: def my_model(): return configure(llama3_8b())."
    returned = code.call("replace", ["base", *(f"{name}={value}" for name, value in changes.items())], 4)
    function = (
        "def configure(base: Trainer.Config) -> Trainer.Config:\n"
        f'    """The configuration of a model, as predicted; start it on {job.parallel.ranks} ranks."""\n'
        f"    return {returned}\n"
    )
    carried = code.carried(_as_written(job), _CARRIED)
    return "\n".join([code.docstring(head, title), *imports, "", carried, "", _PLAIN_LOSS, "", function])


def _replaced(section: str, changes: Mapping[str, Any]) -> str:
    return code.call(
        "replace", [f"base.{section}", *(f"{name}={quote.python(value)}" for name, value in changes.items())], 8
    )


def _compile(job: JobSpec) -> dict[str, Any]:
    backend = {} if job.compile in {"eager", "inductor"} else {"backend": job.compile}
    return {"enable": job.compile != "eager", **backend}


def _training(job: JobSpec) -> dict[str, Any]:
    dtype, compute = _PRECISION.get(job.precision, _PRECISION["fp32"])
    values: dict[str, Any] = {
        "local_batch_size": job.batch_size,
        "global_batch_size": job.batch_size * job.grad_accum * job.parallel.data_ranks,
        "dtype": dtype,
        "mixed_precision_param": compute,
        "enable_cpu_offload": job.parallel.offload,
        "disable_cuda_graphs": True,
    }
    values |= {"seq_len": job.seq_len} if job.seq_len is not None else {}
    values |= {"max_norm": job.clip_grad_norm} if job.clip_grad_norm is not None else {}
    return values


def _parallelism(job: JobSpec) -> dict[str, Any]:
    parallel = job.parallel
    return {
        "data_parallel_replicate_degree": parallel.replicas,
        "data_parallel_shard_degree": parallel.shards,
        "fsdp_reshard_after_forward": "always" if parallel.reshard else "never",
        "tensor_parallel_degree": parallel.tensor,
        "context_parallel_degree": parallel.context,
        "pipeline_parallel_degree": parallel.pipeline,
        "pipeline_parallel_schedule": _SCHEDULES[parallel.schedule],
        "pipeline_parallel_microbatch_size": _micro_batch_size(job),
        "expert_parallel_degree": parallel.expert,
    }


def _micro_batch_size(job: JobSpec) -> int:
    return max(1, job.batch_size // (job.parallel.micro_batches or 2 * job.parallel.pipeline))


def notes(job: JobSpec, lost: Collection[str]) -> Iterator[str]:
    """What torchtitan has no word for, or does otherwise."""
    todo = {
        "optimizer": "torchtitan has AdamW and Adam",
        "precision": "torchtitan has no such precision, fp32 is written",
        "attention": "choose the attention backend of the model",
        "lora": "torchtitan has no adapters for it",
        "quantize": "torchtitan has no quantised weights",
        "checkpoint": "torchtitan has no plans, nothing is checkpointed",
        "optimizer_in_backward": "torchtitan has no such thing",
        "offload_activations": "torchtitan has no such thing",
        "float8": "give the model's specification a Float8LinearConverter.Config",
    }
    yield from words.left_out(job, lost, todo)
    if job.clip_grad_norm is None:
        yield f"clip_grad_norm: max_norm stays what it is ({_MAX_NORM} by default): torchtitan always clips"
    if job.loss_chunks > 1:
        yield "ChunkedLossWrapper makes parts of the sequence, their gradients in forward: other bytes than predicted"
    if job.parallel.reshard is not True and job.parallel.reshard is not False:
        yield f"parallel {job.parallel}: reshard={job.parallel.reshard} cannot be said, always is written"
    if job.parallel.pipeline > 1:
        yield from _pipeline_notes(job)
    if job.optimizer == "adam":
        yield "optimizer adam: set optimizer_name='Adam' in base.optimizer.param_groups"


def _pipeline_notes(job: JobSpec) -> Iterator[str]:
    count = job.parallel.micro_batches or 2 * job.parallel.pipeline
    if job.batch_size % count:
        yield f"parallel {job.parallel}: a batch of {job.batch_size} cannot be cut into {count} micro-batches"
