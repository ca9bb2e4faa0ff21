"""What each operator takes on the CPU, real beside predicted: torch's own operator database, forward and backward.

Every sample of ``op_db`` runs for real under torch.profiler (without a dispatch mode, as a plain program does), and
once more on fake tensors under memplan's recorder. Compared are the peaks of both, of the forward and of the whole. A
sample is *announced* where it is not right, but an op that it met is named in ``not_modelled`` (or an assumption was
made) and the interval holds the truth; else it is *silent*. Usage::

    python benchmarks/cpu_ops.py [--dtype float32] [--only silent] [--turned] [--mixed]
        [--autocast] [--gradient expanded]
        [--events] [NAME ...]
"""

import argparse
import contextlib
import logging
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import record_function
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map_only

sys.path.insert(0, str(Path(__file__).parents[1]))

from memplan.runtime.profile.kineto import Profiler
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.semantics import semantics
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world

MARK = "cpu_ops."
CHUNK = 100
"""Samples in one run of the profiler."""
FLOOR = 24
"""Bytes that make no difference: a number that stands among tensors becomes one (8 bytes), and is cast (8 more)."""
TOLERATED = 0.005
"""Share that makes none."""

Arguments = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""Input, positional and keyword arguments."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One call from the database."""

    name: str
    place: int
    """Which of the operator's samples."""
    call: Callable[[Arguments], Any]
    arguments: Arguments
    differentiable: bool


class Peaks(NamedTuple):
    """Bytes above what lived before, at most."""

    forward: int
    whole: int


class Step(NamedTuple):
    """One allocation or free."""

    op: str
    nbytes: int
    """Negative for a free."""
    in_forward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    sample: Sample
    real: Peaks
    predicted: Peaks
    least: int
    """Low end of the predicted whole."""
    most: int
    """High end."""
    named: tuple[str, ...]
    """What the prediction leaves out or assumes."""
    streams: tuple[list[Step], list[Step]]
    """Real and predicted events."""

    @property
    def verdict(self) -> str:
        """``right``, ``announced`` or ``silent``."""
        pairs = zip(self.real, self.predicted, strict=True)
        if all(abs(guess - real) <= max(FLOOR, TOLERATED * real) for real, guess in pairs):
            return "right"
        held = self.least - FLOOR <= self.real.whole <= self.most + FLOOR
        return "announced" if self.named and held else "silent"


def samples(
    names: list[str],
    dtype: torch.dtype,
    most: int,
    infos: Iterable[Any] = op_db,
    *,
    in_place: bool = False,
) -> Iterator[Sample]:
    """Samples of the database in one type, differentiable ones where there is a gradient.

    Args:
        names: Operators; all without.
        dtype: Of most operands.
        most: Samples of one operator.
        infos: Entries of the database.
        in_place: Run what writes into its first operand, on a copy, without gradients.
    """
    for info in infos:
        label = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        if names and info.name not in names and label not in names:
            continue
        operator = info.inplace_variant if in_place else info.op
        if operator is None or dtype not in info.supported_dtypes("cpu"):
            continue
        learns = not in_place and info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
        try:
            inputs = list(islice(info.sample_inputs("cpu", dtype, requires_grad=learns), most))
        except Exception as error:  # noqa: BLE001 - some samples need what is not installed
            print(f"{label}: no samples ({error})", file=sys.stderr)
            continue
        for place, each in enumerate(inputs):
            if _is_plain(each):

                def call(arguments: Arguments, run: Any = operator, shown: Any = each) -> Any:
                    first = tree_map_only(torch.Tensor, torch.clone, arguments[0]) if in_place else arguments[0]
                    return shown.output_process_fn_grad(run(first, *arguments[1], **arguments[2]))

                yield Sample(label, place, call, (each.input, each.args, each.kwargs), learns)


def _is_plain(sample: Any) -> bool:
    """Are all tensors dense?"""
    tensors = [
        leaf for leaf in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(leaf, torch.Tensor)
    ]
    return all(each.layout is torch.strided for each in tensors)


def _learning(value: Any) -> list[torch.Tensor]:
    found = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in found if leaf.requires_grad]


def _turned_ones(like: torch.Tensor) -> torch.Tensor:
    order = tuple(reversed(range(like.ndim)))
    return torch.ones_like(like.permute(order), memory_format=torch.contiguous_format).permute(order)


GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": torch.ones_like,
    "expanded": lambda like: torch.ones((), dtype=like.dtype).expand_as(like),
    "turned": _turned_ones,
}
"""How the gradient of the result lies: as after most ops, after a sum or a mean, after a transposition."""


@dataclass(slots=True)
class _Conditions:
    """Under which all samples run."""

    gradient: str = "dense"
    autocast: bool = False


_conditions = _Conditions()


def forward(sample: Sample, arguments: Arguments) -> Any:
    """The operator itself."""
    with torch.autocast("cpu", torch.bfloat16, enabled=_conditions.autocast):
        return sample.call(arguments)


def backward(sample: Sample, arguments: Arguments, out: Any) -> Any:
    """Gradients of all inputs for a given gradient of ones, of the layout that is asked for."""
    results = _learning(out) if sample.differentiable else []
    if not results:
        return None
    return torch.autograd.grad(
        results, _learning(arguments), [GRADIENTS[_conditions.gradient](each) for each in results], allow_unused=True
    )


# ---------------------------------------------------------------------- real


def measured(chunk: tuple[Sample, ...]) -> dict[Sample, list[Step]]:
    """Run samples for real; those that fail are left out."""
    profiler, found = Profiler(), dict[int, list[Step]]()
    for sample in chunk:
        # Once before, for what the first call of a kernel keeps.
        with contextlib.suppress(Exception):
            backward(sample, sample.arguments, forward(sample, sample.arguments))
    profiler.start()
    for index, sample in enumerate(chunk):
        kept: list[Any] = []
        with contextlib.suppress(Exception):
            with record_function(f"{MARK}{index}"):
                kept.append(forward(sample, sample.arguments))
            with record_function(f"{MARK}{index}.backward"):
                kept.append(backward(sample, sample.arguments, kept[0]))
            found[index] = []
        kept.clear()
    for _, _, nbytes, around in profiler.finish(lambda _: False).events:
        marks = [name.removeprefix(MARK) for name in around if name.startswith(MARK)]
        if marks and int(marks[0].partition(".")[0]) in found:
            number, _, phase = marks[0].partition(".")
            found[int(number)].append(Step(around[-1], nbytes, not phase))
    return {chunk[index]: steps for index, steps in found.items()}


# ---------------------------------------------------------------------- predicted


class Prediction(NamedTuple):
    """Events of one sample, and how far they may be off."""

    steps: list[Step]
    least: int
    most: int
    named: tuple[str, ...]


def predicted(sample: Sample) -> Prediction:
    """Trace a sample on fake tensors."""
    device = DeviceTraits(kind="cpu")
    values = Values()
    with fake_world(), semantics(device, "auto") as means:
        recorder = Recorder(device, means.scratch_rules, means.place_rule, values)
        means.ask_host(recorder.references.is_host)
        with recorder.watching():
            arguments = tree_map_only(torch.Tensor, _fake_like, sample.arguments)
            recorder.recording = True
            ledger = recorder.ledger
            start = len(ledger.events)
            out = forward(sample, arguments)
            middle = len(ledger.events)
            grads = backward(sample, arguments, out)
            end = len(ledger.events)
            recorder.recording = False
        del out, grads
    sizes = [(entry.nbytes, entry.most) for entry in ledger.entries]
    events = list(enumerate(ledger.events[start:end], start))
    steps = [
        Step(
            recorder.ops[event.op].name if event.op >= 0 else "",
            sizes[event.storage][0] * (1 if event.action == "alloc" else -1),
            place < middle,
        )
        for place, event in events
    ]

    def bound(size: Callable[[int, int | None], int]) -> int:
        signed = (size(*sizes[event.storage]) * (1 if event.action == "alloc" else -1) for _, event in events)
        return _peak(signed)

    least = bound(lambda nbytes, most: nbytes if most is None else 0)
    most = bound(lambda nbytes, most: nbytes if most is None else most)
    names = {op.name for op in recorder.ops}
    named = (*values.assumptions, *means.assumptions(names), *means.not_modelled(names))
    return Prediction(steps, least, most, named)


def _fake_like(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    made = made.conj() if tensor.is_conj() else made
    return made.requires_grad_(tensor.requires_grad)


def _peak(sizes: Iterable[int]) -> int:
    live = peak = 0
    for nbytes in sizes:
        live += nbytes
        peak = max(peak, live)
    return peak


def peaks(steps: list[Step]) -> Peaks:
    """Peaks of a stream."""
    return Peaks(_peak(step.nbytes for step in steps if step.in_forward), _peak(step.nbytes for step in steps))


# ---------------------------------------------------------------------- the table


def rows(chunk: tuple[Sample, ...], failures: dict[str, str]) -> Iterator[Row]:
    """Compare the samples of a chunk."""
    for sample, real in measured(chunk).items():
        try:
            guess = predicted(sample)
        except Exception as error:  # noqa: BLE001 - what cannot be traced has no prediction
            failures[sample.name] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        yield Row(
            sample=sample,
            real=peaks(real),
            predicted=peaks(guess.steps),
            least=guess.least,
            most=guess.most,
            named=guess.named,
            streams=(real, guess.steps),
        )


def show(row: Row, *, events: bool) -> None:
    """Print one line, and the streams where they are wanted."""
    real, guess = row.real, row.predicted
    where = f"{row.sample.name}#{row.sample.place}"
    print(
        f"{where:<44}{row.verdict:<10}{real.forward:>9}{guess.forward:>9}{real.whole:>9}{guess.whole:>9}"
        f"  [{row.least}, {row.most}]"
    )
    if events:
        print("    " + describe(row.sample.arguments))
        for name, steps in zip(("real", "predicted"), row.streams, strict=True):
            print(f"    {name}: " + " ".join(f"{step.op.removeprefix('aten::')}:{step.nbytes:+d}" for step in steps))


def describe(value: Any) -> str:
    """Arguments as text: dtype, shape and strides of tensors."""
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}{list(value.shape)}" + ("" if value.is_contiguous() else f"/{tuple(value.stride())}")
    if isinstance(value, tuple | list):
        return "(" + ", ".join(describe(item) for item in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={describe(item)}" for key, item in value.items()) + "}"
    return repr(value)


def main() -> None:
    """Print the table and its sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; all without")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--most", type=int, default=1000, help="samples of one operator")
    parser.add_argument("--side", type=int, help="length of a side of most samples' tensors, for the database's own 5")
    parser.add_argument("--only", default="", help="verdicts to print, separated by commas; all without")
    parser.add_argument("--events", action="store_true", help="print both streams")
    parser.add_argument("--turned", action="store_true", help="operands of two dimensions and more lie column-major")
    parser.add_argument("--autocast", action="store_true", help="run operators under autocast to bfloat16")
    parser.add_argument("--gradient", choices=GRADIENTS, default="dense", help="how the gradient of the result lies")
    parser.add_argument("--mixed", action="store_true", help="every operand but the first is of a wider type")
    options = parser.parse_args()
    _conditions.gradient, _conditions.autocast = options.gradient, options.autocast
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(_header(options.dtype))
    if options.side:
        enlarge(options.side)
    wanted = set(options.only.split(",")) - {""}
    failures: dict[str, str] = {}
    counted: Counter[str] = Counter()
    worst: dict[str, str] = {}
    found = samples(options.names, getattr(torch, options.dtype), options.most)
    for change in (turned,) * options.turned + (mixed,) * options.mixed:
        found = map(change, found)
    for chunk in _chunks(found):
        for row in rows(chunk, failures):
            counted[row.verdict] += 1
            if row.verdict == "silent" or worst.get(row.sample.name) != "silent":
                worst[row.sample.name] = max(row.verdict, worst.get(row.sample.name, ""), key=_ORDER.index)
            if not wanted or row.verdict in wanted:
                show(row, events=options.events)
    for name, why in sorted(failures.items()):
        print(f"{name:<44}not traced: {why[:120]}")
    operators = Counter(worst.values())
    print(f"{counted.total()} samples: {dict(counted)}; {len(worst)} operators: {dict(operators)}")


def turned(sample: Sample) -> Sample:
    """The sample with operands that lie the other way round in memory, as after a transposition or an FFT.

    The database has but vectors for operators of one operand: these become matrices.
    """
    tensors = [leaf for leaf in tree_leaves(sample.arguments) if isinstance(leaf, torch.Tensor)]

    def turn(operand: torch.Tensor) -> torch.Tensor:
        learns = operand.requires_grad
        if operand.ndim == 1 and len(tensors) == 1 and len(operand) % 8 == 0:
            operand = operand.detach().view(8, -1)
        if operand.ndim < 2 or not operand.is_contiguous():
            return operand
        order = tuple(reversed(range(operand.ndim)))
        return operand.detach().permute(order).contiguous().permute(order).requires_grad_(learns)

    return replace(sample, arguments=tree_map_only(torch.Tensor, turn, sample.arguments))


def mixed(sample: Sample) -> Sample:
    """The sample with every floating operand but the first in a wider type; many operators refuse that."""

    def widen(operand: torch.Tensor) -> torch.Tensor:
        if not operand.is_floating_point():
            return operand
        wider = torch.float64 if operand.dtype is torch.float32 else torch.float32
        return operand.detach().to(wider).requires_grad_(operand.requires_grad)

    first, *others = sample.arguments
    several = isinstance(first, list | tuple)
    beside, others = tree_map_only(torch.Tensor, widen, (first[1:] if several else (), others))
    return replace(sample, arguments=(first[:1] + beside if several else first, *others))


def enlarge(side: int) -> None:
    """Let the database make larger samples: its sizes are globals of the modules that it is made of."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch.testing._internal.common_methods_invocations", "torch.testing._internal.opinfo")):
            for constant, factor in (("S", 1), ("M", 2), ("L", 4)):
                if isinstance(getattr(module, constant, None), int):
                    setattr(module, constant, factor * side)


def _chunks(found: Iterator[Sample]) -> Iterator[tuple[Sample, ...]]:
    while chunk := tuple(islice(found, CHUNK)):
        yield chunk


_ORDER = ["", "right", "announced", "silent"]


def _header(dtype: str) -> str:
    capability = torch.backends.cpu.get_cpu_capability()
    versions = f"torch {torch.__version__}, {capability}, Python {platform.python_version()}"
    return f"{dtype}, {versions}, {time.strftime('%Y-%m-%d')}"


if __name__ == "__main__":
    main()
