"""The optimizations of a job: those that are on, each with the job without it, and those that could be."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from memplan.job.options import OPTIONS
from memplan.job.parallel import ALONE, Parallel
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.measure.savings import Switch
from memplan.plan.recommend.changes import single_changes
from memplan.plan.recommend.programs import program_changes

_WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "checkpoint": {},
    "precision": {},
    "float8": {},
    "optimizer": {"optimizer": "adamw"},
    "optimizer_impl": {"optimizer_impl": "foreach"},
    "optimizer_in_backward": {},
    # Weights are frozen where adapters are trained alone, and only frozen ones can be quantised.
    "lora": {"lora": None, "quantize": "none"},
    "quantize": {},
    "loss_chunks": {},
    "offload_activations": {},
    "compress_activations": {},
}
"""Field → what a job is without the optimization; its default where nothing stands."""
_THAT_SAVE: Mapping[str, tuple[str, ...]] = {
    "optimizer": ("adamw-8bit", "paged-adamw-8bit", "adafactor"),
    "optimizer_impl": ("fused",),
}
"""Field → the values that are optimizations; every value but the default where nothing stands."""


def switches(spec: JobSpec) -> tuple[Switch, ...]:
    """Return every optimization that a job has, then those that it could have.

    Args:
        spec: The job; of a program only what is put on it from outside, or by its own arguments.
    """
    on = dict(_on(spec))
    return (*on.values(), *_parallel(spec), *_attention(spec), *_off(spec, frozenset(on)))


def _on(spec: JobSpec) -> Iterator[tuple[str, Switch]]:
    for name, without in _WITHOUT.items():
        value, default = getattr(spec, name), OPTIONS[name].default
        if value == default or value not in _THAT_SAVE.get(name, (value,)):
            continue
        if isinstance(spec.target, ScriptTarget) and not OPTIONS[name].about.for_programs:
            continue
        yield name, Switch(_typed(name, value), replace(spec, **(without or {name: default})), is_on=True)


def _typed(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option} {value}"


def _parallel(spec: JobSpec) -> Iterator[Switch]:
    """Sharding against a whole copy on each rank."""
    parallel = spec.parallel
    copies = Parallel(data="ddp", replicas=parallel.ranks)
    if parallel == ALONE or isinstance(spec.target, ScriptTarget):
        return
    if parallel == copies:
        shards = Parallel(data="fsdp2", shards=parallel.ranks)
        yield Switch(_typed("parallel", shards), replace(spec, parallel=shards), is_on=False)
        return
    yield Switch(_typed("parallel", parallel), replace(spec, parallel=copies, zero=None), is_on=True)
    if parallel.offload:
        kept = replace(parallel, offload=False)
        yield Switch("offload in --parallel", replace(spec, parallel=kept, zero=None), is_on=True)


def _attention(spec: JobSpec) -> Iterator[Switch]:
    """Attention that never makes all scores at once."""
    if spec.attention != "math":
        usual = spec.attention == OPTIONS["attention"].default
        yield Switch(_typed("attention", spec.attention), replace(spec, attention="math"), is_on=True, is_usual=usual)


def _off(spec: JobSpec, on: frozenset[str]) -> Iterator[Switch]:
    for change in program_changes(single_changes(spec, spec.parallel.ranks), spec):
        fields = {name for name, _ in change.fields}
        if change.group != "parallel" and not fields & on:
            yield Switch(change.text, change.made(spec), is_on=False)
