"""FSDP2 as code: ``fully_shard`` on every repeated block, then on the rest, as memplan traces it."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from memplan.emit import code, functions, words
from memplan.job.parallel import Parallel
from memplan.job.setup_file import Setup
from memplan.job.spec import JobSpec

FILE = "fsdp2.py"
_CARRIED = frozenset({
    "parallel", "precision", "optimizer", "optimizer_impl", "checkpoint", "lora", "compile", "loss_chunks",
    "optimizer_in_backward", "offload_activations",
})  # fmt: skip


def render(setup: Setup, head: Sequence[str]) -> Mapping[str, str]:
    """``shard(model)`` and ``make_optimizer(model, lr)``."""
    return {FILE: _text(setup.job, head), **code.plan_files(setup.job)}


def notes(job: JobSpec, lost: Collection[str]) -> Iterator[str]:
    """What is left to the program."""
    todo = {"grad_accum": "model.set_requires_gradient_sync(False) but for the last micro-batch saves communication"}
    yield from words.left_out(job, lost, todo)
    yield from code.optimizer_note(job)


def _text(job: JobSpec, head: Sequence[str]) -> str:
    imports = code.imports(
        job,
        "from torch import nn",
        "from torch.distributed.device_mesh import init_device_mesh",
        f"from torch.distributed.fsdp import {', '.join(_names(job))}",
    )
    parts = [code.docstring(head, "FSDP2: call shard(model) in every process, before the optimizer is made."), imports]
    parts += [code.carried(job, _CARRIED), ""]
    parts += [functions.REPEATED_BLOCKS, ""] if job.checkpoint != "full" else []
    return "\n".join([*parts, *code.own_functions(job), _shard(job), "", code.optimizer_function(job)])


def _names(job: JobSpec) -> list[str]:
    names = ["CPUOffloadPolicy"] if job.parallel.offload else []
    return [*names, *(["MixedPrecisionPolicy"] if job.precision.endswith("-mixed") else []), "fully_shard"]


def _shard(job: JobSpec) -> str:
    reshard = f"reshard_after_forward={job.parallel.reshard}"
    # What nothing is said of is left to torch: then the root's own parameters stay, since backward needs them at once.
    of_root = "" if job.parallel.reshard is True else f", {reshard}"
    body = [
        *code.setup_lines(job),
        f"mesh = {_mesh(job.parallel)}",
        f"options = {code.call('dict', _options(job), 4)}",
        "for block in list(repeated_blocks(model)):",
        f"    fully_shard(block, {reshard}, **options)",
        f"fully_shard(model{of_root}, **options)",
        *code.compile_lines(job),
        *(["offload_activations(model)"] if job.offload_activations else []),
        "return model",
    ]
    home = '"cpu"' if job.parallel.offload else "device_type"
    head = [
        'def shard(model, device_type="cuda"):',
        f'    """Share a model among {job.parallel.ranks} ranks.',
        "",
        '    It was predicted to have no memory before: build it under torch.device("meta"), and afterwards call',
        f"    model.to_empty(device={home}). That leaves parameters and buffers without values and tied weights apart:",
        "    tie them again (transformers: model.tie_weights()), load the weights, fill buffers that no file has.",
        '    """',
    ]
    return "\n".join([*head, *(f"    {line}".rstrip() for line in body)]) + "\n"


def _mesh(parallel: Parallel) -> str:
    if parallel.replicas > 1:
        sizes, names = f"({parallel.replicas}, {parallel.shards})", '("dp_replicate", "dp_shard")'
    else:
        sizes, names = f"({parallel.shards},)", '("dp_shard",)'
    return f"init_device_mesh(device_type, {sizes}, mesh_dim_names={names})"


def _options(job: JobSpec) -> Iterator[str]:
    yield "mesh=mesh"
    if job.precision.endswith("-mixed"):
        dtype = code.DTYPES[job.precision]
        yield f"mp_policy=MixedPrecisionPolicy(param_dtype={dtype}, reduce_dtype=torch.float32)"
    if job.parallel.offload:
        yield "offload_policy=CPUOffloadPolicy()"
