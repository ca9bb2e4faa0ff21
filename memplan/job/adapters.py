"""What is trained of a model, and in what form the rest is held: low-rank adapters and quantised weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt

from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import SETTINGS, UnreadableError

Quantize = Literal["none", "nf4", "nf4-double", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters beside frozen weights, in the words of peft's ``LoraConfig``."""

    rank: Annotated[int, Ge(1)] = 8
    """``r``."""
    alpha: Annotated[float, Ge(0)] = 16.0
    """``lora_alpha``."""
    targets: tuple[str, ...] = ("all-linear",)
    """``target_modules``: name endings, or ``all-linear``."""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """``lora_dropout``."""
    dora: bool = False
    """``use_dora``."""
    prepare: bool = True
    """Beside quantised weights: do peft's ``prepare_model_for_kbit_training``, which casts all others to fp32?"""
    config: Mapping[str, Any] | None = None
    """All of an ``adapter_config.json``, of which the fields above show what they can."""
    path: Path | None = None
    """Where that was read."""

    def __str__(self) -> str:
        """As it is typed."""
        if self.path is not None:
            return str(self.path)
        parts = [f"r={self.rank}", f"alpha={self.alpha:g}", f"targets={'+'.join(self.targets)}"]
        parts += [f"dropout={self.dropout:g}"] if self.dropout else []
        parts += ["dora=yes"] if self.dora else []
        return ",".join([*parts, *([] if self.prepare else ["prepare=no"])])


_FORM = "write for example r=16,alpha=32,targets=q_proj+v_proj"


def parse_lora(text: str, folder: Path = Path()) -> Lora:
    """Read ``--lora``.

    Args:
        text: ``KEY=VALUE`` joined by commas: ``r``, ``alpha``, ``targets`` (joined by ``+``), ``dropout``, ``dora``,
            ``prepare``; or the path of an ``adapter_config.json`` as peft writes it.
        folder: Where a relative path begins.

    Raises:
        UsageError: The text says something else, or the same thing twice; the file is none of LoRA.
    """
    if text.endswith(".json"):
        return _read_config(folder / text)
    values: dict[str, Any] = {}
    for item in text.split(","):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in _READERS or not value:
            raise UsageError(f"--lora does not know '{item.strip()}'", hint=_FORM)
        field, read = _READERS[key]
        if field in values:
            raise UsageError(f"--lora says '{key}' twice", hint=_FORM)
        try:
            values[field] = read(value)
        except (ValueError, KeyError):
            raise UsageError(f"--lora {key} cannot be '{value}'", hint=_FORM) from None
    return Lora(**values)


def _read_config(path: Path) -> Lora:
    try:
        config = read_json(path, SETTINGS)
    except UnreadableError as error:
        raise UsageError(f"--lora cannot read '{path}': {error}", hint=_FORM) from error
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if kind != "LORA":
        raise UsageError(f"--lora reads configurations of LoRA, and '{path}' is of {kind}", hint=_FORM)
    targets = config.get("target_modules") or ("all-linear",)
    if not isinstance(targets, str | list | tuple) or not all(isinstance(each, str) for each in targets):
        raise UsageError(f"'{path}': target_modules must be a name or a list of names", hint=_FORM)
    return Lora(
        rank=config.get("r", 8),
        alpha=config.get("lora_alpha", 8),
        targets=(targets,) if isinstance(targets, str) else tuple(targets),
        dropout=config.get("lora_dropout", 0.0),
        dora=bool(config.get("use_dora", False)),
        config=config,
        path=path,
    )


def _rank(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _share(text: str) -> float:
    if not 0 <= float(text) < 1:
        raise ValueError
    return float(text)


_YES_OR_NO = {"yes": True, "no": False}.__getitem__
_READERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "r": ("rank", _rank),
    "alpha": ("alpha", float),
    "targets": ("targets", lambda text: tuple(text.split("+"))),
    "dropout": ("dropout", _share),
    "dora": ("dora", _YES_OR_NO),
    "prepare": ("prepare", _YES_OR_NO),
}
