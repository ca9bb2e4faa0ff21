"""Checkpoint plans on real models: what was promised, what a real CPU step took, and what others need for the same.

Every cell is a process of its own, forked off one that has traced its model. Rows are kept in a CSV file, and what
stands there is not run again; delete a line to have it again.
"""

import csv
import dataclasses
import multiprocessing
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from memplan.errors import MemplanError

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "checkpointing_models.csv"
SHARES = (80, 60, 40, 25)
"""Budgets: per cent of the activations at the unplanned peak that may be left."""
BASELINE_SHARES = (60, 25)
"""Of these, those that other solvers get, too."""
OWN_WAYS = frozenset({"none", "ilp", "sqrt", "greedy", "rotor"})
"""Those that memplan plans."""
SETTINGS = ("1.0", "0.8", "0.5", "0.35", "0.25", "0.15", "0.05", "0.0")
"""Of ``activation_memory_budget``."""
FEW_SETTINGS = ("1.0", "0.5", "0.15")
TIMEOUT = 1800.0
"""Seconds for one cell."""
GOAL = 1.0
"""Per cent that a real peak may be off its promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A target file and the size of its step."""

    name: str
    batch_size: int
    seq_len: int | None = None
    folder: str = "checkpoint_zoo"
    """Where the file is."""
    is_transformer: bool = True
    """The policies of PyTorch are made for blocks that repeat, as in these."""
    settings: tuple[str, ...] = ()
    """Of ``activation_memory_budget``, to compile it with."""
    methods: tuple[str, ...] = ("sqrt",)
    """Solvers beside the integer program."""
    device: str = "cpu"
    """Profile."""
    precision: str = "fp32"
    is_preset: bool = False
    """One of ``memplan presets``, which is traced alone."""

    @property
    def job(self) -> dict[str, Any]:
        """What the child is told."""
        return {
            "target": f"preset:{self.name}" if self.is_preset else str(HERE / self.folder / f"{self.name}.py"),
            "batch_size": self.batch_size,
            "seq_len": self.seq_len,
            "device": self.device,
            "precision": self.precision,
        }


MODELS = (
    Model(name="llama_small", batch_size=4, seq_len=256, settings=SETTINGS, methods=("sqrt", "greedy", "rotor")),
    Model(name="gpt2", batch_size=1, seq_len=768, settings=FEW_SETTINGS),
    Model(name="resnet50", batch_size=8, is_transformer=False),
    Model(name="llama", batch_size=1, seq_len=2048),
    Model(name="unet", batch_size=2, is_transformer=False),
    Model(name="t5", batch_size=2, seq_len=256),
    Model(name="vit", batch_size=4),
    Model(name="moe", batch_size=4, seq_len=256),
    Model(name="dlrm", batch_size=4096, is_transformer=False, settings=FEW_SETTINGS),
    Model(name="unet_middle", batch_size=4, settings=FEW_SETTINGS),
    Model(name="ctc", batch_size=8, seq_len=64, is_transformer=False, settings=FEW_SETTINGS),
    Model(name="mamba", batch_size=4, seq_len=24, settings=FEW_SETTINGS),
    Model(name="swin", batch_size=4, settings=FEW_SETTINGS),
    Model(name="dit", batch_size=4, settings=FEW_SETTINGS),
    Model(name="whisper", batch_size=4, seq_len=64, settings=FEW_SETTINGS),
    Model(name="gnn", batch_size=4, settings=FEW_SETTINGS),
    Model(name="llama-3.2-1b", batch_size=4, seq_len=2048, device="h100-80g", precision="bf16", is_preset=True),
    Model(name="llama-3.1-8b", batch_size=1, seq_len=4096, device="h100-80g", precision="bf16", is_preset=True),
    Model(name="llama-3.1-70b", batch_size=2, seq_len=8192, device="h100-80g", precision="bf16", is_preset=True),
    Model(name="llama-3.1-405b", batch_size=2, seq_len=8192, device="h100-80g", precision="bf16", is_preset=True),
)


@dataclass(slots=True, kw_only=True)
class Row:
    """One cell. Bytes, seconds, and FLOPs of one step; None where there is no such figure."""

    model: str
    way: str
    """``none``, ``full``, a method, ``selective`` (torchtitan's policy), ``compiled:SETTING`` or ``sac_ilp``."""
    budget_of: str = ""
    """Per cent of the activations; or ``WAY`` or ``WAY@PER_CENT``, whose real peak is the budget."""
    result: str = ""
    budget: int | None = None
    before: int | None = None
    activations: int | None = None
    least: int | None = None
    promise: int | None = None
    measured: int | None = None
    flops: int | None = None
    promised_extra: float | None = None
    """Extra time by roofline, as a share of the step."""
    gap: float | None = None
    traces: int | None = None
    trace_seconds: float | None = None
    solve_seconds: float | None = None
    solve_cpu_seconds: float | None = None
    prove_seconds: float | None = None
    step_seconds: float | None = None
    error: str = ""
    commit: str = ""
    """Of memplan, when the cell ran."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What no other row has."""
        return self.model, self.way, self.budget_of


def cells(model: Model) -> Iterator[Row]:
    """What is asked of a model, most important first."""

    def row(way: str, budget_of: object = "") -> Row:
        return Row(model=model.name, way=way, budget_of=str(budget_of))

    yield row("none")
    yield from (row("ilp", share) for share in SHARES)
    if model.is_preset:
        return
    yield row("full")
    if model.is_transformer:
        yield row("selective")
        yield row("ilp", "selective")
    yield from (row(f"compiled:{setting}") for setting in model.settings)
    yield from (row("ilp", f"compiled:{setting}") for setting in model.settings if setting != "1.0")
    yield from (row("sac_ilp", share) for share in BASELINE_SHARES)
    yield from (row("ilp", f"sac_ilp@{share}") for share in BASELINE_SHARES)
    yield from (row(method, share) for method in model.methods for share in BASELINE_SHARES)


def run(names: Iterable[str], ways: Iterable[str], path: Path = RESULTS) -> None:
    """Fill in what is missing.

    Args:
        names: Models; empty: all.
        ways: Ways to checkpoint, or none for all; ``none`` always runs.
        path: The CSV file.
    """
    import checkpoint_sac  # noqa: F401 - every fork finds it imported.
    import transformers.modeling_utils  # noqa: F401

    chosen, wanted = frozenset(names), frozenset(ways)
    for model in MODELS:
        if not chosen or model.name in chosen:
            process = multiprocessing.get_context("fork").Process(target=_run, args=(model, wanted, path))
            process.start()
            process.join()


def _run(model: Model, wanted: AbstractSet[str], path: Path) -> None:
    """Fill in the cells of a model, each in a fork of this process, which makes the traces that they share."""
    is_traced = False
    for cell in cells(model):
        done = read(path)
        is_wanted = not wanted or cell.way.partition(":")[0] in wanted | {"none"}
        if cell.key in done or not is_wanted or not _is_possible(cell, done):
            continue
        if cell.way in OWN_WAYS and not is_traced:
            _trace(model)
            is_traced = True
        answer = in_fork(_fill, model, cell, done)
        if isinstance(answer, str):
            answer = dataclasses.replace(cell, result="error", error=answer)
        write(path, dataclasses.replace(answer, commit=_commit()))
        print(*(str(value) for value in dataclasses.astuple(answer)), flush=True)


def _commit() -> str:
    """Of the checkout; nothing outside one."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, check=False, cwd=HERE, capture_output=True, text=True).stdout.strip()


def _trace(model: Model) -> None:
    """Have the traces; what goes wrong is told by the cells, where it goes wrong again."""
    import highspy
    from checkpoint_child import planned

    with suppress(MemplanError):
        planned(model.job)
    # A fork has none of the solver's threads, and would wait for them.
    highspy.Highs.resetGlobalScheduler(True)


def _is_possible(cell: Row, done: Mapping[tuple[str, str, str], Row]) -> bool:
    """Is what its budget is a share of known?"""
    if not cell.budget_of:
        return True
    base = done.get(_base(cell))
    return base is not None and bool(base.before if cell.budget_of.isdigit() else base.measured)


def _base(cell: Row) -> tuple[str, str, str]:
    """Key of the row that a cell's budget is made of."""
    way, _, share = cell.budget_of.partition("@")
    return (cell.model, "none", "") if cell.budget_of.isdigit() else (cell.model, way, share)


def _fill(model: Model, row: Row, done: dict[tuple[str, str, str], Row]) -> Row:
    """One cell, in its own process."""
    from checkpoint_child import measure, planned

    job = model.job | {"checkpoint": "none", "policy": "none"}
    if row.way == "none":
        row = dataclasses.replace(row, **planned(model.job))
    elif row.way == "full":
        job["checkpoint"] = "full"
    elif not row.budget_of:
        job["policy"] = row.way
    else:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            return _fill_planned(model, row, _budget(row, done), Path(file.name))
    return row if model.is_preset else dataclasses.replace(row, **measure(job))


def _fill_planned(model: Model, row: Row, budget: int, file: Path) -> Row:
    """A cell with a budget: its plan goes to a file, and what applies it reads it there."""
    from checkpoint_child import planned
    from checkpoint_sac import sac_planned

    if row.way == "sac_ilp":
        row = dataclasses.replace(row, **sac_planned(model.job, file, budget))
        job = model.job | {"checkpoint": "none", "policy": f"sac_ilp:{file}"}
    else:
        row = dataclasses.replace(row, **planned(model.job, file, budget=budget, method=row.way))
        job = model.job | {"checkpoint": str(file), "policy": "none"}
    is_run = not model.is_preset and row.result in {"optimal", "feasible"}
    return dataclasses.replace(row, **_measured(job)) if is_run else row


def _measured(job: dict[str, Any]) -> dict[str, Any]:
    """Planning leaves its own process changed; the run gets a fresh one."""
    from checkpoint_child import measure

    answer = in_fork(measure, job)
    return {"error": answer} if isinstance(answer, str) else answer


def _budget(row: Row, done: dict[tuple[str, str, str], Row]) -> int:
    base = done[_base(row)]
    if row.budget_of.isdigit():
        return base.before - (100 - int(row.budget_of)) * base.activations // 100
    return base.measured


def in_fork(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a forked process, or in words what went wrong."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(TIMEOUT) else f"longer than {TIMEOUT:g} s"
    except EOFError:
        return "the process died"
    finally:
        process.kill()
        process.join()


def _answer(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        answer = function(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the cell's result.
        answer = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
    pipe.send(answer)


def read(path: Path) -> dict[tuple[str, str, str], Row]:
    """The rows of a CSV file, by key."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = [Row(**{name: _value(name, text) for name, text in row.items()}) for row in csv.DictReader(file)]
    return {row.key: row for row in rows}


_TYPES = {field.name: field.type for field in dataclasses.fields(Row)}


def _value(name: str, text: str) -> Any:
    if _TYPES[name] is str:
        return text
    return None if not text else float(text) if _TYPES[name] == float | None else int(text)


def write(path: Path, row: Row) -> None:
    """Add a row to a CSV file."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(_TYPES))
        if is_new:
            writer.writeheader()
        writer.writerow(dataclasses.asdict(row))
