"""What the files of a framework can say of how a job runs: all else they refuse, or leave to the program."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from memplan.errors import UsageError
from memplan.job.parallel import DataParallel
from memplan.job.spec import JobSpec, OptimizerName

Degree = Literal["tensor", "context", "pipeline", "expert"]
"""Degrees of ``Parallel`` beside the data-parallel ones."""
DEGREES: tuple[Degree, ...] = get_args(Degree)
HINT = "docs/emit.md lists what each format can say"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sayable:
    """What one framework's files can say."""

    framework: str
    """Its name, as the subject of a sentence."""
    degrees: Mapping[DataParallel, frozenset[Degree]]
    """What keeps the data-parallel ranks together → what may be beside it."""
    unshardable: frozenset[OptimizerName] = frozenset()
    """Optimizers that it refuses under FSDP2."""
    needs_shards: bool = False
    """Does it refuse replicas that share layers or sequences, but no state?"""

    def refusal(self, job: JobSpec) -> UsageError | None:
        """Return why the files cannot say a job; None where they can."""
        name, parallel = self.framework, job.parallel
        if job.mode != "train":
            return UsageError(f"the setup is for {job.mode}; only training has a configuration to write")
        if parallel.data == "none" and "none" not in self.degrees:
            return UsageError(f"{name} is for several data-parallel ranks, and this setup has none", hint=HINT)
        if lacking := self._lacking(job):
            return UsageError(f"{name} cannot say '{parallel}': it has no {' and no '.join(lacking)}", hint=HINT)
        is_shared = parallel.tensor * parallel.context > 1
        if self.needs_shards and parallel.shards == 1 < parallel.replicas and is_shared:
            what = f"{name} cannot say '{parallel}': replicas with tensor or context parallelism need shards, too"
            return UsageError(what, hint="give hsdp at least two shards, or leave the replicas away")
        if parallel.data == "fsdp2" and job.optimizer in self.unshardable:
            return UsageError(f"{name} refuses {job.optimizer} under FSDP2", hint="take another optimizer")
        return None

    def _lacking(self, job: JobSpec) -> list[str]:
        """Return the ways to share this job that it has not."""
        data = job.parallel.data
        beside = self.degrees.get(data, frozenset())
        asked = [name for name in DEGREES if getattr(job.parallel, name) > 1 and name not in beside]
        return [
            *([] if data in self.degrees else [f"{data} data parallelism"]),
            *(f"{name} parallelism" for name in asked),
        ]
