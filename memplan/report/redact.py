"""What a report may say outside of the team that wrote the model: sizes, categories and structure, but no names of it.

Module names become ``m1``, ``m2`` …, the same word everywhere; numbers of blocks stay, so that repeated ones are still
seen as such. Files become ``file1`` …, lines stay. Libraries that everybody has keep their names. Sentences that name
code are left out. Words are numbered in the order of the estimate, so that who has the estimate can tell them again.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from memplan.job.options import OPTIONS
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.records import Estimate, RecordedEstimate, RoutedPeak
from memplan.report.draw.layout import source_line

LIBRARIES = (
    "torch",
    "torchvision",
    "transformers",
    "diffusers",
    "peft",
    "accelerate",
    "deepspeed",
    "bitsandbytes",
    "timm",
)
"""Installed packages whose files keep their names: public ones. A private package may be installed, too."""
OPS = ("aten", "prims", "prim", "c10d", "_c10d_functional", "fsdp", "quantized", "torchvision", "bitsandbytes")
"""Namespaces of ops that keep their names: PyTorch's own and those of the libraries."""
WORDS = ("", "weight", "bias")
"""Last words of parameters' names that tell nothing."""
HIDDEN = "hidden"
"""Stands for values that are not shown."""
LEFT_OUT = "a sentence that names code is left out"
_NAMES_CODE = re.compile(r"[\w)\]][./\\:_]+[\w(\[]|[/\\'\"`<]")
"""A dotted or scoped name, a path, or something quoted."""


def redacted(results: Sequence[RecordedEstimate]) -> tuple[RecordedEstimate, ...]:
    """Estimates of one job without the names of its code. Histories cannot be redacted, and are dropped.

    Equal names become equal words in all of them.
    """
    names = Names()
    return tuple(
        RecordedEstimate(
            estimate=redacted_estimate(result.estimate, names),
            history=None,
            digest=redacted_digest(result.digest, names) if result.digest else None,
        )
        for result in results
    )


class Names:
    """Words that stand for names, the same for the same."""

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._ops: dict[str, str] = {}

    def module(self, path: str) -> str:
        """``model.layers.3.mlp`` → ``m1.m2.3.m3``."""
        return ".".join(
            part if part.isdecimal() else _numbered(self._modules, part, "m") for part in path.split(".") if part
        )

    def source(self, source: str) -> str:
        """``train/model.py:41`` → ``file1:41``; a public library's from the library on."""
        if not source:
            return ""
        short = source_line(source)
        if short != source and re.split(r"[\\/]", short)[0] in LIBRARIES:
            return short
        file, _, line = source.rpartition(":")
        word = _numbered(self._files, file or source, "file")
        return f"{word}:{line}" if file and line.isdecimal() else word

    def op(self, name: str) -> str:
        """An op's name, if everybody has it."""
        return name if not name or re.split(r"[.:]", name)[0] in OPS else _numbered(self._ops, name, "op")

    def member(self, name: str) -> str:
        """The name of a parameter within its module, or of an op."""
        head = re.split(r"[.:]", name)[0]
        return name if name in WORDS or (head in OPS and head != name) else self.module(name)

    def sentences(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Those that name nothing; the same words for all others."""
        kept = dict.fromkeys(text if self._says_nothing(text) else LEFT_OUT for text in texts)
        return tuple(kept)

    def _says_nothing(self, text: str) -> bool:
        known = {*self._modules, *self._files, *self._ops}
        return not _NAMES_CODE.search(text) and not any(name in text for name in known)


def _numbered(words: dict[str, str], name: str, kind: str) -> str:
    return words.setdefault(name, f"{kind}{len(words) + 1}")


def redacted_estimate(estimate: Estimate, names: Names) -> Estimate:
    """An estimate without the names of its code; words so far are used, and more are added."""
    peak = estimate.peak
    return replace(
        estimate,
        target=estimate.target if estimate.target.startswith("preset:") else HIDDEN,
        options={name: _option(name, value) for name, value in estimate.options.items()},
        owners=tuple(
            replace(owner, module=names.module(owner.module), source=names.source(owner.source))
            for owner in estimate.owners
        ),
        peak=replace(peak, module=names.module(peak.module), op=names.op(peak.op), source=names.source(peak.source)),
        provenance=dict(_origin(*item, names) for item in estimate.provenance.items()),
        assumptions=names.sentences(estimate.assumptions),
        not_modelled=names.sentences(estimate.not_modelled),
        envelope=tuple(_routed(each, names) for each in estimate.envelope),
        savings=tuple(
            replace(each, optimization=_typed(each.optimization), reason=" ".join(names.sentences([each.reason])))
            for each in estimate.savings
        ),
    )


def _routed(peak: RoutedPeak, names: Names) -> RoutedPeak:
    return replace(
        peak,
        module=names.module(peak.module),
        op=names.op(peak.op),
        source=names.source(peak.source),
        reason=" ".join(names.sentences([peak.reason])),
    )


def redacted_digest(digest: HistoryDigest, names: Names) -> HistoryDigest:
    """A digest without the names of its code; arguments as for ``redacted_estimate``."""
    holders = (
        holder._replace(
            module=names.module(holder.module), source=names.source(holder.source), name=names.member(holder.name)
        )
        for holder in digest.holders
    )
    return replace(digest, holders=tuple(holders))


def _option(name: str, value: str) -> str:
    """A target's own optimizer may be of a class of its own."""
    if name == "optimizer":
        return re.sub(r"\bown \w+", "own optimizer", value)
    option = OPTIONS.get(name)
    return value if option is not None and not option.about.names_code else _word(value)


def _typed(words: str) -> str:
    """``--lora hidden --quantize nf4`` for options as they are typed."""
    name, shown = "", list[str]()
    for word in words.split(" "):
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
        shown.append(word if word.startswith("--") or name not in OPTIONS else _option(name, word))
    return " ".join(shown)


def _word(value: str) -> str:
    return value if value in ("none", "full") else HIDDEN


def _origin(name: str, origin: str, names: Names) -> tuple[str, str]:
    """A field and where its value came from: an option, a default or an item of the batch, but no file."""
    if name.startswith("forward."):
        name = f"forward.{names.module(name.removeprefix('forward.'))}"
    shown = origin == "default" or re.fullmatch(r"--[a-z-]+|batch\[\d+\]", origin)
    return name, origin if shown else HIDDEN
