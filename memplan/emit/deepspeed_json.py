"""``ds_config.json`` for DeepSpeed 0.19.8.

JSON has no comments: the head stands under ``_memplan``, which DeepSpeed passes over. ``train_batch_size`` is written
out, so that DeepSpeed itself refuses to run on another number of ranks.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from memplan.emit import words
from memplan.job.config_files.deepspeed import OPTIMIZERS, ZERO_KEYS
from memplan.job.setup_file import Setup
from memplan.job.spec import JobSpec
from memplan.job.zero import Zero

FILE = "ds_config.json"
NVME_PATH = "/local_nvme"
"""As in DeepSpeed's own examples; nobody but the user knows the right one."""

HALF: Mapping[str, str] = {"bf16": "bf16", "bf16-mixed": "bf16", "fp16": "fp16", "fp16-mixed": "fp16"}
"""Precision → section: weights in half precision and fp32 master weights, whichever of the two was typed."""
_TESTED = frozenset({"adamw", "adam", "adagrad", "lion"})
"""runtime/zero/utils.py, ``ZERO_SUPPORTED_OPTIMIZERS``."""


def render(setup: Setup, head: Sequence[str]) -> Mapping[str, str]:
    """One file."""
    return {FILE: config_text(setup, head)}


def config_text(setup: Setup, head: Sequence[str]) -> str:
    """The file's content."""
    return json.dumps({"_memplan": list(head), **config(setup.job)}, indent=2) + "\n"


def config(job: JobSpec) -> dict[str, Any]:
    """The configuration as plain data."""
    content: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": job.batch_size,
        "gradient_accumulation_steps": job.grad_accum,
        "train_batch_size": job.batch_size * job.grad_accum * job.parallel.data_ranks,
        "gradient_clipping": job.clip_grad_norm or 0.0,
    }
    if job.precision in HALF:
        content[HALF[job.precision]] = {"enabled": True}
    return content | _zero(job) | _optimizer(job)


def notes(job: JobSpec, lost: Collection[str]) -> Iterator[str]:
    """What the file leaves out."""
    if job.optimizer in OPTIMIZERS:
        yield "the learning rate is the optimizer's default: add optimizer.params.lr"
    todo = {
        "lora": "give the model adapters with peft before deepspeed.initialize",
        "optimizer": "make it in the training script and pass it to deepspeed.initialize",
    }
    yield from words.left_out(job, lost, todo)
    yield from nvme_note(job)


def nvme_note(job: JobSpec) -> Iterator[str]:
    """A sentence where a disk takes part: its path is not known."""
    if job.zero is not None and "nvme" in (job.zero.offload_optimizer, job.zero.offload_param):
        yield f"nvme_path is {NVME_PATH}: say where the disk is"


def _zero(job: JobSpec) -> dict[str, Any]:
    """All settings: bucket sizes are memory, so DeepSpeed's defaults of the day are not relied on."""
    stage = int(job.parallel.data.removeprefix("zero"))
    zero = job.zero or Zero()
    content: dict[str, Any] = {}
    for field, places in ZERO_KEYS.items():
        for place in places:
            _put(content, place, stage if field == "stage" else getattr(zero, field))
    return _without_idle(content)


def _put(content: dict[str, Any], place: str, value: object) -> None:
    *sections, key = place.split(".")
    for section in sections:
        content = content.setdefault(section, {})
    if value is not None:
        content[key] = value


def _without_idle(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out devices that nothing is offloaded to, and sections that say nothing; a disk needs its path."""
    section = content["zero_optimization"]
    for name in ("offload_optimizer", "offload_param"):
        if section[name]["device"] == "none":
            section.pop(name)
        elif section[name]["device"] == "nvme":
            section[name]["nvme_path"] = NVME_PATH
    return {name: value for name, value in content.items() if value}


def _optimizer(job: JobSpec) -> dict[str, Any]:
    untested = {} if job.optimizer in _TESTED else {"zero_allow_untested_optimizer": True}
    if job.optimizer is None or job.optimizer not in OPTIMIZERS:
        return untested
    kind, parameters = OPTIMIZERS[job.optimizer]
    return {"optimizer": {"type": kind, "params": dict(parameters)}, **untested}
