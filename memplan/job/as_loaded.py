"""How most people train a model of transformers: in the type that it is loaded in, by its own Trainer.

``hf:`` and ``preset:`` targets whose precision or loop nobody chose::

    the weights' own type    a card with bfloat16       an older card
    bfloat16, float16        bf16    (bf16=True)        fp16-mixed (fp16=True)
    float32                  bf16-mixed (bf16=True)     fp16-mixed (fp16=True)

A step without training has no autocast: there the type itself decides.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.job.spec import HubTarget, JobSpec, Precision, PresetTarget, Target
from memplan.job.trainer_options import refused
from memplan.versions import at_least, installed

if TYPE_CHECKING:
    from memplan.job.presets.catalog import Preset

LOADS_THE_TYPE: Final = "5"
"""transformers from which ``from_pretrained`` takes the configuration's type (modeling_utils.py: ``dtype="auto"``)."""
ORIGIN: Final = "transformers=="
"""Where a choice came from that nobody made, before the release."""
HALF: Final[Mapping[str, Precision]] = {"bfloat16": "bf16", "float16": "fp16"}
"""Type of weights → what ``--precision`` calls it."""


def as_loaded(spec: JobSpec, *, has_bfloat16: bool = True, by_trainer: bool = True) -> JobSpec:
    """Return a job with the loop and the precision that most people's have, where nobody chose them.

    Args:
        spec: The job; what its provenance calls ``default`` was chosen by nobody.
        has_bfloat16: Can every card that it is for multiply in bfloat16?
        by_trainer: May Trainer train it? Searches compare what Trainer does not do.
    """
    if not _is_of_transformers(spec):
        return spec
    version = installed("transformers")
    origin = f"{ORIGIN}{version}"
    chosen: dict[str, Any] = {}
    if by_trainer and _default(spec, "loop") and importlib.util.find_spec("accelerate") and not refused(spec):
        chosen["loop"] = "trainer"
    loaded = _loaded(spec.target) if at_least(version, LOADS_THE_TYPE) else "float32"
    if loaded is not None and _default(spec, "precision"):
        chosen["precision"] = _precision(loaded, trains=spec.mode == "train", has_bfloat16=has_bfloat16)
    changed = {name: value for name, value in chosen.items() if value != getattr(spec, name)}
    return replace(spec, provenance={**spec.provenance, **dict.fromkeys(changed, origin)}, **changed)


def said(spec: JobSpec) -> tuple[str, ...]:
    """Say what stands for a choice that nobody made."""
    origin = spec.provenance.get("precision", "")
    if not origin.startswith(ORIGIN):
        return ()
    loaded = _loaded(spec.target) or "float32"
    release = origin.replace("==", " ")
    held = f"weights are {loaded}, as {release} loads them"
    if HALF.get(loaded) not in (None, spec.precision):
        held = f"{release} loads the weights in {loaded}; here they are those of --precision {spec.precision}"
    under = f"under {spec.precision[:4]}=True of Trainer" if spec.loop == "trainer" else "under autocast"
    trains = f"; trained {under}" if spec.loop == "trainer" or spec.precision.endswith("-mixed") else ""
    return (f"{held}{trains} (--precision and --loop say otherwise)",)


def _default(spec: JobSpec, field: str) -> bool:
    return spec.provenance.get(field) == "default"


def _precision(loaded: str, *, trains: bool, has_bfloat16: bool) -> Precision:
    half = HALF.get(loaded)
    if not trains:
        return half or "fp32"
    if not has_bfloat16:
        return "fp16-mixed"
    return "bf16" if half else "bf16-mixed"


def _preset(target: PresetTarget) -> "Preset":
    # Read for presets alone: commands about files begin without it (0.1 s).
    from memplan.job.presets.catalog import find_preset

    return find_preset(target.name)


def _is_of_transformers(spec: JobSpec) -> bool:
    target = spec.target
    if isinstance(target, PresetTarget):
        return _preset(target).library == "transformers"
    return isinstance(target, HubTarget)


def _loaded(target: Target) -> str | None:
    """The type of a target's weights as they are published; None where its configuration is not at hand."""
    if isinstance(target, PresetTarget):
        return _preset(target).dtype
    assert isinstance(target, HubTarget)  # noqa: S101 - the caller asked.
    path = Path(target.location)
    try:
        found = read_json(path / "config.json" if path.is_dir() else path)
    except UnreadableError:
        return None
    if not isinstance(found, Mapping):
        return None
    text = found.get("text_config") or {}
    # ``torch_dtype`` is its name before transformers 5.
    kinds = (each.get("dtype") or each.get("torch_dtype") for each in (found, text))
    return next((str(kind) for kind in kinds if kind), "float32")
