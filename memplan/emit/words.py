"""What all emitters say alike: the head of a file, and what a format leaves out."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from memplan.emit.quote import one_line
from memplan.job.options import OPTIONS
from memplan.job.setup_file import Setup, setup_hash
from memplan.job.spec import JobSpec
from memplan.units import format_bytes

_ALWAYS_TOLD = frozenset({"batch_size", "precision"})
"""Frameworks have defaults of their own for these."""
CLIPPED_BY_DEFAULT = "max_grad_norm 0.0: the setup does not clip gradients; the trainer's own default is 1.0"
_FULL = "call model.gradient_checkpointing_enable(), or run each block through torch.utils.checkpoint"
"""What to do where every repeated block is checkpointed; else a plan says which."""


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


def commented(head: Iterable[str]) -> str:
    """Lines of a head as comments that begin with ``#``."""
    return "".join(f"# {one_line(line)}\n" for line in head)


def left_out(job: JobSpec, lost: Collection[str], todo: Mapping[str, str] | None = None) -> Iterator[str]:
    """A sentence for each option of a job that cannot be read back from a file.

    ``todo`` says what to do in this framework instead of the usual, by field.
    """
    for name, option in OPTIONS.items():
        value = getattr(job, name)
        is_default = value == option.default and name not in _ALWAYS_TOLD
        # Without a word on what to do it is no configuration: only a prediction needs it.
        if name not in lost or is_default or not option.about.by_hand:
            continue
        usual = _FULL if name == "checkpoint" and value == "full" else option.about.by_hand.format(value=value)
        yield f"{name} {value}: {(todo or {}).get(name, usual)}"
