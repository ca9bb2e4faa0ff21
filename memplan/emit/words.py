"""What all emitters say alike: the head of a file, what a format leaves out, what it cannot do at all."""

from collections.abc import Iterator, Mapping
from dataclasses import fields

from memplan.emit.quote import one_line
from memplan.errors import UsageError
from memplan.job.parallel import Parallel
from memplan.job.setup_file import Setup, setup_hash
from memplan.job.spec import JobSpec
from memplan.units import format_bytes

_NO_CONFIGURATION = frozenset({
    "target", "mode", "inputs", "data_dependent", "max_new_tokens", "kv_block_size", "allow_network",
    "trust_remote_code", "provenance", "zero",
})  # fmt: skip
"""What only a prediction needs, what chooses the model, and what goes with ``parallel``."""
_ALWAYS_TOLD = frozenset({"batch_size", "precision"})
"""Frameworks have defaults of their own for these."""
_HINTS: Mapping[str, str] = {
    "batch_size": "give it to the data loader",
    "seq_len": "cut the samples to this length",
    "precision": "cast the model, or run it under torch.autocast",
    "optimizer": "make it in the training script",
    "optimizer_impl": "make the optimizer with foreach= or fused=",
    "grad_accum": "step the optimizer once in so many micro-batches",
    "clip_grad_norm": "call clip_grad_norm_ before the optimizer steps",
    "attention": "choose the kernel with torch.nn.attention.sdpa_kernel",
    "compile": "call model.compile()",
    "lora": "give the model adapters with peft",
    "quantize": "quantise the weights where the model is loaded",
    "float8": "call torchao.float8.convert_to_float8_training on the model, with this recipe",
    "loss_chunks": "make the logits in so many parts, as chunk_loss of --to torch does",
    "optimizer_in_backward": "step a parameter in register_post_accumulate_grad_hook",
    "offload_activations": "run forward under torch.autograd.graph.save_on_cpu",
    "data_workers": "give it to the data loader as num_workers",
    "prefetch": "give it to the data loader as prefetch_factor",
    "pin_memory": "give it to the data loader",
    "replay_buffer": "keep so many samples in the training script",
    "replay_buffer_on": "keep them there in the training script",
    "compress_activations": "pack what autograd saves in torch.autograd.graph.saved_tensors_hooks",
}


def head(setup: Setup) -> tuple[str, ...]:
    """Lines for the head of a file: who made it of what, and what was predicted. Not quoted for any language yet."""
    predicted = setup.predicted
    parts = [
        f"device peak {format_bytes(predicted.device_bytes)}",
        f"allocated {format_bytes(predicted.allocated_bytes)}",
        f"reserved {format_bytes(predicted.reserved_bytes)}",
    ]
    parts += [f"host {format_bytes(predicted.host_bytes)}"] if predicted.host_bytes is not None else []
    parts += [f"{predicted.step_seconds:.3g} s per step"] if predicted.step_seconds is not None else []
    return (
        f"Written by memplan {setup.memplan_version} from setup {setup_hash(setup)}.",
        f"Predicted for each rank on {setup.gpu}: {', '.join(parts)}.",
    )


def commented(setup: Setup) -> str:
    """The head as comments that begin with ``#``."""
    return "".join(f"# {one_line(line)}\n" for line in head(setup))


def left_out(job: JobSpec, said: frozenset[str], todo: Mapping[str, str] | None = None) -> Iterator[str]:
    """A sentence for each option of a job that a format has no word for.

    Args:
        job: The job.
        said: Fields that the format says.
        todo: Field → what to do in this framework instead of the usual.
    """
    usual = {"checkpoint": _checkpoint_todo(job), "parallel": f"start {job.parallel.ranks} processes"}
    hints = {**_HINTS, **usual, **(todo or {})}
    for field in fields(JobSpec):
        value = getattr(job, field.name)
        is_default = value == field.default and field.name not in _ALWAYS_TOLD
        if field.name in said | _NO_CONFIGURATION or is_default:
            continue
        yield f"{field.name} {value}: {hints[field.name]}"


def _checkpoint_todo(job: JobSpec) -> str:
    if job.checkpoint == "full":
        return "call model.gradient_checkpointing_enable(), or run each block through torch.utils.checkpoint"
    return f"call memplan.apply(model, {job.checkpoint!r}) once the model is built"


def refuse_parallel(
    parallel: Parallel, framework: str, kinds: frozenset[str], degrees: frozenset[str] = frozenset()
) -> None:
    """Complain of a way to share the job that a framework has not.

    Args:
        parallel: The job's.
        framework: As errors call it.
        kinds: The values of ``Parallel.data`` that it has.
        degrees: Those of ``tensor``, ``context``, ``pipeline`` and ``expert`` that it has.

    Raises:
        UsageError: It cannot.
    """
    hint = "docs/emit.md lists what each format can say"
    if parallel.data == "none" and "none" not in kinds:
        raise UsageError(f"{framework} is for several data-parallel ranks, and this setup has none", hint=hint)
    wrong = [] if parallel.data in kinds else [f"{parallel.data} data parallelism"]
    wrong += [
        f"{name} parallelism"
        for name in ("tensor", "context", "pipeline", "expert")
        if getattr(parallel, name) > 1 and name not in degrees
    ]
    if wrong:
        raise UsageError(f"{framework} cannot say '{parallel}': it has no {' and no '.join(wrong)}", hint=hint)
