"""The gate as a user meets it: cases x exit codes x formats, end to end.

A fresh virtual environment gets the wheel of this checkout and nothing else of it; ``examples/ci_gate`` becomes a
repository of its own; each case is a commit on a branch of it, after which ``memplan gate`` runs with every format.

    python benchmarks/gate_cases.py                    the table, in results/gate_cases.txt
    python benchmarks/gate_cases.py --only tight hangs --venv DIR     some cases, in an environment that is kept
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gate_formats

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "ci_gate"
RESULTS = Path(__file__).parent / "results" / "gate_cases.txt"
TORCH = "torch==2.13.0"
PATCH = "double-a-layer.patch"
BASELINE = "memplan-baseline.json"
INTERRUPTED = 130
Change = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One commit, what is run on it, and what must come of it."""

    name: str
    """What it shows."""
    exit_code: int
    """Expected."""
    program: str = "memplan"
    """What is run."""
    words: tuple[str, ...] = ("gate",)
    """Of the command line, without formats."""
    change: Change | None = None
    """Makes the commit; None: there is nothing to change."""
    says: tuple[str, ...] = ()
    """What the markdown must hold, or the error where there are no reports."""
    formats: bool = True
    """Must every format be written? Else none may."""
    interrupt_after: float | None = None
    """Seconds until Ctrl-C."""
    at_most: float | None = None
    """Seconds that it may take."""


def replaced(file: str, old: str, new: str) -> Change:
    """A change of one file; fails where the old text is not there."""

    def change(folder: Path) -> None:
        text = (folder / file).read_text()
        if old not in text:
            raise ValueError(f"{file} has no {old!r}")
        (folder / file).write_text(text.replace(old, new))

    return change


def patched(folder: Path) -> None:
    """Apply the patch of the example."""
    git(folder, "apply", PATCH)


def added(file: str, text: str) -> Change:
    """A change that puts text at the end of a file."""
    return lambda folder: written(folder / file, (folder / file).read_text() + text)


def written(path: Path, text: str) -> None:
    """Write a file."""
    path.write_text(text)


def all_of(*changes: Change) -> Change:
    """Several changes, one after another."""

    def change(folder: Path) -> None:
        for each in changes:
            each(folder)

    return change


def cards_alike(folder: Path) -> None:
    """An L4 with as much memory as lies between the peak of a job and the upper end of its interval."""
    estimate = json.loads((folder / BASELINE).read_text())["jobs"]["small"]["l4"]
    size = (estimate["peak"]["device_bytes"] + estimate["peak"]["high_bytes"]) // 2
    profile = (ROOT / "hardware_profiles" / "l4.toml").read_text().replace('aliases = ["l4-24g"]\n', "")
    (folder / "cards").mkdir()
    sized = re.sub(r"(?m)^(total|usable)_bytes = [\d_]+", rf"\1_bytes = {size}", profile)
    (folder / "cards" / "small-l4.toml").write_text(sized)
    replaced("memplan.toml", 'gpus = ["l4"]\nbase', 'profile-dirs = ["cards"]\ngpus = ["small-l4"]\nbase')(folder)
    replaced("memplan.toml", 'max-increase = "2%"\n', "")(folder)


def future_baseline(folder: Path) -> None:
    """A baseline of a version that is not known."""
    content = json.loads((folder / BASELINE).read_text())
    (folder / BASELINE).write_text(json.dumps({**content, "schema_version": "2.0"}))


UNTRACEABLE = """

@torch.library.custom_op("ours::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def untraceable() -> nn.Module:
    model = small()
    model.head.register_forward_hook(lambda module, inputs, output: scale(output))
    return model
"""
JOB = '\n[[job]]\nname = "{name}"\ntarget = "train.py:{name}"\nbatch-size = 1\n{more}'
HANG = "\n\ndef hanging() -> nn.Module:\n    while True:\n        pass\n"
FAIL = '\n\ndef failing() -> nn.Module:\n    raise RuntimeError("the checkpoint is not here")\n'


def new_job(name: str, code: str, more: str = "") -> Change:
    """A change that adds a job with code of its own."""

    def change(folder: Path) -> None:
        added("train.py", code)(folder)
        added("memplan.toml", JOB.format(name=name, more=more))(folder)
        replaced("memplan.toml", 'max-increase = "2%"\n', "")(folder)

    return change


CASES = (
    Case(name="clean", exit_code=0, says=("small", "medium")),
    Case(name="clean, nothing changed", exit_code=0, at_most=2.0),
    Case(name="doubles a layer", exit_code=1, change=patched,
         says=("MP001", "MP006", "blocks.*.mlp", "model.py:47", "--checkpoint full")),
    Case(name="doubles a layer, accepted", exit_code=0, change=patched,
         words=("gate", "small", "--update-baseline"), says=("accepted",)),
    Case(name="over budget", exit_code=1, words=("gate", "--project", "over-budget.toml"),
         says=("MP004", "max-peak", "Ask #training", "--checkpoint full")),
    Case(name="over budget, informational", exit_code=0, words=("gate", "--project", "over-budget.toml"),
         change=added("over-budget.toml", "informational = true\n"), says=("MP004",)),
    Case(name="over budget, --exit-zero", exit_code=0, words=("gate", "--project", "over-budget.toml", "--exit-zero"),
         says=("MP004",)),
    Case(name="tight, fail-on oom", exit_code=0, words=("gate", "small"), change=cards_alike, says=("MP002",)),
    Case(name="tight, fail-on tight", exit_code=1, words=("gate", "small", "--fail-on", "tight"), change=cards_alike,
         says=("MP002",)),
    Case(name="untraceable op", exit_code=3, words=("gate", "untraceable"), change=new_job("untraceable", UNTRACEABLE),
         says=("MP003", "ours")),
    Case(name="untraceable op, fail-on unknown", exit_code=1, words=("gate", "untraceable", "--fail-on", "unknown"),
         change=new_job("untraceable", UNTRACEABLE), says=("MP003",)),
    Case(name="untraceable op beside one that fails", exit_code=1, words=("gate", "untraceable", "small"),
         change=all_of(new_job("untraceable", UNTRACEABLE), replaced("memplan.toml", "14GiB", "8GiB")),
         says=("MP003", "MP004")),
    Case(name="code that fails", exit_code=3, words=("gate", "failing"), change=new_job("failing", FAIL),
         says=("MP003", "the checkpoint is not here")),
    Case(name="hangs", exit_code=3, words=("gate", "hanging"), change=new_job("hanging", HANG, 'timeout = "15s"\n'),
         says=("MP003", "15"), at_most=60.0),
    Case(name="Ctrl-C", exit_code=INTERRUPTED, words=("gate", "hanging", "--update-baseline"),
         change=new_job("hanging", HANG), formats=False, interrupt_after=8.0, says=("interrupted",)),
    Case(name="malformed TOML", exit_code=2, change=added("memplan.toml", "max-peak = \n"), formats=False,
         says=("memplan.toml", "line")),
    Case(name="unknown keys, all told", exit_code=2, formats=False,
         change=added("memplan.toml", "batchsize = 3\nmax-peek = 1\n"), says=("batch-size?", "max-peak?")),
    Case(name="two jobs, one name", exit_code=2, change=replaced("memplan.toml", '"medium"', '"small"'), formats=False,
         says=("one name, 'small'",)),
    Case(name="missing baseline", exit_code=2, change=lambda folder: (folder / BASELINE).unlink(), formats=False,
         says=("no baseline", "--update-baseline")),
    Case(name="baseline is the project file", exit_code=2, words=("gate", "--baseline", "memplan.toml"), formats=False,
         says=("the project file itself",)),
    Case(name="baseline is a report", exit_code=2, words=("gate", "-f", f"json={BASELINE}"), formats=False,
         says=("over the baseline",)),
    Case(name="baseline from the future", exit_code=2, change=future_baseline, formats=False, says=("2.0",)),
    Case(name="baseline is no JSON", exit_code=2, formats=False, says=("JSON",),
         change=lambda folder: written(folder / BASELINE, "{")),
    Case(name="folder that is not there", exit_code=2, words=("gate", "-f", "json=nowhere/gate.json"), formats=False,
         says=("nowhere/gate.json",)),
    Case(name="device that is full", exit_code=2, words=("gate", "-f", "json=/dev/full"), formats=False,
         says=("/dev/full", "No space left")),
    Case(name="no project", exit_code=2, change=lambda folder: (folder / "memplan.toml").unlink(), formats=False,
         says=("memplan init",)),
    Case(name="tests of the example", exit_code=0, program="pytest", words=(), formats=False, says=("3 passed",)),
    Case(name="tests, doubled layer", exit_code=1, program="pytest", words=(), change=patched, formats=False,
         says=("over the limit of 13 GiB: most is held by", "train.py:27")),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a case."""

    exit_code: int
    """Of the process."""
    formats: int
    """How many were written."""
    seconds: float
    """Wall time."""
    wrong: tuple[str, ...]
    """All that is not as it must be."""


def git(folder: Path, *words: str) -> str:
    """Run git."""
    identity = ("-c", "user.name=memplan", "-c", "user.email=memplan@localhost", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def make_environment(folder: Path) -> Path:
    """A virtual environment with the wheel of this checkout; where it has one already, only the wheel is made anew."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", TORCH, "pytest"], check=True)
    with tempfile.TemporaryDirectory() as wheels:
        pip = (python, "-m", "pip")
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT], check=True)
        [wheel] = Path(wheels).glob("memplan-*.whl")
        subprocess.run([*pip, "install", "--quiet", "--upgrade", wheel], check=True)
        subprocess.run([*pip, "install", "--quiet", "--force-reinstall", "--no-deps", wheel], check=True)
    return folder / "bin"


def make_repository(folder: Path) -> None:
    """A repository whose first commit is the example."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "The example")


def run(case: Case, programs: Path, repository: Path, scratch: Path) -> Outcome:
    """Commit the change of a case and run the gate on it."""
    git(repository, "checkout", "--quiet", "-B", re.sub(r"\W+", "-", case.name), "main")
    if case.change is not None:
        case.change(repository)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--allow-empty", "--message", case.name)
    reports = scratch / re.sub(r"\W+", "-", case.name)
    reports.mkdir()
    began = time.perf_counter()
    words = (*case.words, *(gate_formats.options(reports) if case.program == "memplan" else ()))
    code, output = _process([programs / case.program, *words], repository, scratch, case)
    seconds = time.perf_counter() - began
    written = gate_formats.written(reports)
    found = (reports / "gate.md").read_text() if "markdown" in written else output
    changed = git(repository, "status", "--porcelain").splitlines()
    expected = [f" M {BASELINE}"] if "--update-baseline" in case.words and not case.exit_code else []
    problems = [f"exit {code}, not {case.exit_code}: {output.strip()[-300:]}"] if code != case.exit_code else []
    problems += [f"does not say {words!r}" for words in case.says if words not in found]
    problems += [f"{name} is not valid" for name in gate_formats.wrong(reports) if case.formats]
    problems += [f"{name} was written" for name in written if not case.formats]
    problems += [f"left behind: {line}" for line in changed if line not in expected]
    problems += [f"half a file: {path.name}" for path in reports.iterdir() if path.name.endswith(".tmp")]
    problems += [f"{seconds:.1f} s"] if case.at_most is not None and seconds > case.at_most else []
    git(repository, "reset", "--quiet", "--hard")
    return Outcome(exit_code=code, formats=len(written), seconds=seconds, wrong=tuple(problems))


def _process(words: Sequence[str | Path], folder: Path, scratch: Path, case: Case) -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MEMPLAN_", "PYTHON", "PYTEST_"))}
    environment: Mapping[str, str] = {**kept, "MEMPLAN_CACHE_DIR": str(scratch / "cache"), "NO_COLOR": "1"}
    process = subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=case.interrupt_after)
    except subprocess.TimeoutExpired:
        # As a terminal does it: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    return process.returncode, output


def line(case: Case, outcome: Outcome) -> str:
    """A row of the table."""
    mark = "ok" if not outcome.wrong else "WRONG"
    formats = f"{outcome.formats} of {len(gate_formats.FORMATS)}"
    words = " ".join((case.program, *case.words))
    return (
        f"{case.name:<38}{case.exit_code:>9}{outcome.exit_code:>5}{formats:>9}{outcome.seconds:>7.1f}  {mark:<6}{words}"
    )


def main() -> int:
    """Run the cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="cases whose name begins so; no table is written")
    parser.add_argument("--venv", type=Path, help="virtual environment that is made, or used again")
    arguments = parser.parse_args()
    # What a shell starts in the background ignores Ctrl-C, and so would its descendants.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cases = [case for case in CASES if not arguments.only or case.name.startswith(tuple(arguments.only))]
    with tempfile.TemporaryDirectory(prefix="memplan-cases-") as folder:
        scratch = Path(folder).resolve()
        programs = make_environment((arguments.venv or scratch / "venv").absolute())
        make_repository(scratch / "repository")
        head = f"{'case':<38}{'expected':>9}{'got':>5}{'formats':>9}{'s':>7}  {'':6}command"
        print(head, flush=True)
        lines, failures = [head], 0
        for case in cases:
            outcome = run(case, programs, scratch / "repository", scratch)
            failures += bool(outcome.wrong)
            lines += [line(case, outcome), *(f"    {each}" for each in outcome.wrong)]
            print("\n".join(lines[-1 - len(outcome.wrong) :]), flush=True)
    lines.append(f"\n{len(cases) - failures} of {len(cases)} as expected. Each ran with {len(gate_formats.FORMATS)} "
                 f"formats at once: {', '.join(gate_formats.FORMATS)}.")  # fmt: skip
    print(lines[-1])
    if not arguments.only:
        RESULTS.write_text("\n".join(lines) + "\n")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
