"""One drawn case, run in this process, and what may come of it."""

import gc
import io
import json
import os
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any, NoReturn
from unittest import mock

import psutil

from memplan.cli.app import main
from memplan.errors import EstimateError
from memplan.job import isolate
from memplan.job.usercode import told
from memplan.measure.records import RecordedEstimate
from tests.fuzz.files import break_one, lay_out
from tests.fuzz.lines import Line, draw
from tests.fuzz.texts import CONTROLS
from tests.report.example_estimates import FITS, OOM

MOST_SECONDS = 60
"""Of CPU time that a case may take, by issue 15 of this project."""
MOST_WAITED = 600.0
"""Of wall time: so long only that waits which never ends, however busy the machine is."""
MORE_MEMORY = 8 << 30
"""Bytes of address space that a case may add: torch takes some 4 GiB when it is imported."""
POLICY = ("gate", "audit", "diff")
"""Commands that may end with 1 where no --fail-on was typed."""


class HungError(BaseException):
    """A case takes too long, or waits for what never comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What was run, and what came of it."""

    seed: int
    """Draws it again."""
    kind: str
    """``options``, or the kind of file that was broken."""
    line: Line
    """As typed."""
    code: int | None
    """The exit code; None where it did not come to one."""
    out: str
    """Standard output."""
    err: str
    """Standard error."""
    seconds: float
    """CPU time, that of processes it started included."""
    wrong: tuple[str, ...]
    """What must not be; empty where all is well."""


def run_case(seed: int) -> Case:
    """Draw a case from its seed and run it in a folder of its own."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(prefix="memplan-fuzz-") as name:
        folder = Path(name).resolve()
        here = folder / "a" / "b" / "c"  # Names that go up stay inside.
        here.mkdir(parents=True)
        lay_out(here)
        kind = "options" if random.random() < 0.5 else break_one(here, random)
        line = draw(random) if kind == "options" else _about(kind, random)
        encoding = "ascii" if random.random() < 0.1 else "utf-8"
        with _inside(here), _heard(here / "pipe"):
            before = _cpu()
            code, out, err = _run(line, encoding, real=random.random() < 0.08)
            seconds = _cpu() - before
        wrong = tuple(_wrong(line, code, out, err, here))
        (here / "unreadable").chmod(0o700)
    return Case(seed=seed, kind=kind, line=line, code=code, out=out, err=err, seconds=seconds, wrong=wrong)


_READERS: dict[str, tuple[str, ...]] = {
    "model.py": ("audit {}", "estimate {} --gpu t4", "init {}", "validate {} --device cpu"),
    "memplan.toml": ("gate", "sweep {}", "diff HEAD", "init model.py"),
    "pyproject.toml": ("gate", "sweep {}", "init model.py", "gate --project {}"),
    "estimate.json": ("report {}", "report {} --json", "diff {} {}", "monitor --plan {} -q -- true",
    "report {} -f html=o.html"),
    "gate.json": ("report {}", "report {} -f sarif", "report {} -f markdown", "diff {} baseline.json",
    "report {} --json"),
    "baseline.json": ("report {}", "diff {} estimate.json", "gate --baseline {}",
    "gate --baseline {} --update-baseline"),
    "setup.json": ("emit {} --to deepspeed", "emit {} --to torch -o out", "emit {} --to accelerate",
    "emit {} --to axolotl",
                   "emit {} --to fsdp2", "emit {} --to torchtitan", "emit {} --to transformers",
                   "estimate model.py --gpu t4 --config {}", "report {}"),
    "plan.json": ("estimate model.py --gpu t4 --checkpoint {}", "report {}"),
    "recording.json": ("report {}", "report {} --plan estimate.json", "report {} -f speedscope",
    "report {} -f html=o.html"),
    "graph.json": ("checkpoint-plan {} --budget-ratio 0.8 --time-limit 1s",
    "checkpoint-plan {} --level op --budget 12"),
    "ds_config.json": ("estimate model.py --gpu t4 --config {}",),
    "training.json": ("estimate model.py --gpu t4 --config {}",),
    "adapter_config.json": ("estimate model.py --gpu t4 --lora {}",),
    "config.json": ("estimate hf:{} --gpu t4", "estimate hf:. --gpu t4"),
    "accelerate.yaml": ("estimate model.py --gpu t4 --config {}",),
    "axolotl.yml": ("estimate model.py --gpu t4 --config {}",),
    "buffers.csv": ("reuse-plan {} --time-limit 1s", "reuse-plan {} --capacity 1KiB --json --time-limit 1s"),
    "lengths.txt": ("simulate snapshot.pickle --seq-len-dist {}",
    "simulate model.py --gpu t4 --seq-len-dist {} --steps 3"),
    "mine.toml": ("gpus --profile-dir .", "gpus mine --profile-dir .",
    "estimate model.py --gpu mine --profile-dir ."),
    "snapshot.pickle": ("snapshot {}", "snapshot {} --json", "simulate {} --steps 3",
    "reuse-plan {} --time-limit 1s"),
}  # fmt: skip
"""Kind of file → commands that read it."""


def _about(kind: str, random: Random) -> Line:
    words = random.choice(_READERS[kind]).replace("{}", kind).split()
    return Line(words[0], words)


def _run(line: Line, encoding: str, *, real: bool) -> tuple[int | None, str, str]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        streams = (
            io.TextIOWrapper(out, encoding=encoding, errors="strict", write_through=True),
            io.TextIOWrapper(err, encoding=encoding, errors="backslashreplace", write_through=True),
        )
        code: int | None = None
        with _streams(*streams), _isolated(real=real), _limit():
            try:
                code = main(line.words)
            except HungError:
                print("HUNG", file=streams[1])
            except BaseException as error:  # noqa: BLE001 - a traceback, for whoever runs the command.
                print(f"TRACEBACK {type(error).__name__}: {error!r:.300}", file=streams[1])
        found = []
        for stream, file in zip(streams, (out, err), strict=True):
            stream.flush()
            file.seek(0)
            found.append(file.read().decode("utf-8", "replace"))
            stream.detach()
        return code, found[0], found[1]


@contextmanager
def _streams(out: io.TextIOWrapper, err: io.TextIOWrapper) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(), out, err
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before, path = Path.cwd(), [*sys.path]
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, _environment(folder)):
            os.environ.pop("MEMPLAN_DEBUG", None)
            yield
    finally:
        os.chdir(before)
        sys.path[:] = path


@contextmanager
def _heard(pipe: Path) -> Iterator[None]:
    """Somebody reads the pipe, so that whoever writes into it need not wait; who reads it would wait for ever."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield
    finally:
        os.close(reader)


def _environment(folder: Path) -> dict[str, str]:
    """Transformers logs nothing, as in children (``memplan.job.noise``): its handler would keep a case's stream."""
    return {"MEMPLAN_CACHE_DIR": str(folder / "cache"), "COLUMNS": "80", "TRANSFORMERS_VERBOSITY": "error"}


@contextmanager
def _limit() -> Iterator[None]:
    """What waits for ever, such as a pipe without a writer, is ended."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise HungError(number, frame)

    before = signal.signal(signal.SIGALRM, end)
    memory = resource.getrlimit(resource.RLIMIT_AS)
    # A reader without an end shows as an error, and takes no memory from others.
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MORE_MEMORY, memory[1]))
    signal.setitimer(signal.ITIMER_REAL, MOST_WAITED)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, memory)


@contextmanager
def _isolated(*, real: bool) -> Iterator[None]:
    """What would run in a child runs here, or a stand-in of it answers."""
    original = isolate.run_isolated

    def answer(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        name = getattr(function, "func", function).__name__
        if name == "_estimate_in_child" and not real:
            asked = args[0]
            answers = (
                replace((FITS, OOM)[index % 2], target=str(asked.spec.target)) for index in range(len(asked.profiles))
            )
            return tuple(RecordedEstimate(estimate=answer, history=None) for answer in answers), None
        if name not in _RUN_HERE:
            raise EstimateError("model() raised ValueError: a stand-in", where="model.py:3")
        try:
            if name == "_estimate_in_child":
                # Without its cache: what is read would be recorded for as long as this process lives.
                args = (*args[:-1], None)
            return function(*args)
        except HungError:
            raise
        except BaseException as error:
            raise told(error) from error

    with (
        mock.patch.object(isolate, "run_isolated", answer),
        mock.patch("memplan.plan.recommend.flow.search_here", _refuse),
        mock.patch("memplan.plan.sweep.flow.run_all", _refuse),
    ):
        held = [module for module in [*sys.modules.values()] if _has(module, original)]
        for module in held:
            vars(module)["run_isolated"] = answer
        try:
            yield
        finally:
            for module in [*sys.modules.values()]:
                if _has(module, answer):
                    vars(module)["run_isolated"] = original
    gc.enable()


_RUN_HERE = {"_estimate_in_child", "run_policy"}
"""What is quick and needs no stand-in: an estimate where it is asked for, and the replay of a file."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    """What begins processes of joblib's."""
    raise EstimateError("model() raised ValueError: a stand-in", where="model.py:3")


def _has(module: Any, function: Callable[..., Any]) -> bool:
    name = getattr(module, "__name__", "")
    return isinstance(name, str) and name.startswith("memplan") and vars(module).get("run_isolated") is function


def _cpu() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _wrong(line: Line, code: int | None, out: str, err: str, folder: Path) -> Iterator[str]:
    """Each way in which a case goes wrong, by a word that a table can count."""
    if "Traceback (most recent call last)" in err or "TRACEBACK" in err:
        yield "traceback"
    if err.rstrip().endswith("HUNG"):
        yield "hung"
    if "internal error" in out + err:
        yield "internal error"
    yield from _wrong_code(line, code, out, err)
    if CONTROLS & set(out + err):
        yield "control characters"
    if _is_json(line.words) and code in {0, 1} and out and line.command != "monitor" and not _parses(out):
        yield "no JSON"
    yield from _wrong_files(folder)


def _wrong_code(line: Line, code: int | None, out: str, err: str) -> Iterator[str]:
    if line.command == "monitor" and "memplan: " not in err and "error: " not in err and "Usage" not in err:
        return  # The code is the command's.
    if code not in {0, 1, 2, 3}:
        yield f"code {code}"
    if code == 1 and line.command not in (*POLICY, "monitor") and not any("--fail-on" in word for word in line.words):
        yield "code 1 without a policy"
    if code == 2 and not re.search(r"^(error: |Error: |Usage: )", err, re.MULTILINE):
        yield "code 2 without an error"
    if code == 2 and out:
        yield "code 2 with a report"
    if code == 0 and re.search(r"^error: ", err, re.MULTILINE):
        yield "code 0 with an error"


def _wrong_files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.name.endswith(".tmp"):
                yield "half a file"
            if path.name == "out.json" and not _parses(path.read_text("utf-8")):
                yield "half a file"


def _is_json(words: list[str]) -> bool:
    return (
        "--json" in words
        or "--format=json" in words
        or any(word in {"-f", "--format"} and value == "json" for word, value in pairwise(words))
    )


def _parses(text: str) -> bool:
    try:
        json.loads(text, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    except ValueError:
        return False
    return True
