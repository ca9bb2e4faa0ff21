"""What a user types, each in a process of its own: search, emit, and the emitted file traced again."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from memplan.job.config_files.read import read_config
from memplan.job.setup_file import Setup, load_setup
from memplan.job.spec import JobSpec

TARGETS = {"torch": "torch_target.py", "fsdp2": "fsdp2_target.py"}
"""Emitted code that a target file of the user calls: format → that file."""
ADAPTERS = "adapter_config.json"
"""A file of its own, that is typed beside the others."""
NO_READER = frozenset({"torchtitan"})
"""Configurations that are code, of models of their own."""
_NOT_TYPED = frozenset({
    "target", "mode", "inputs", "data_dependent", "max_new_tokens", "allow_network", "trust_remote_code", "provenance",
    "zero", "no_fold",
})  # fmt: skip
_LIMIT = 3600.0
"""Seconds for one command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    said: str
    """Its last words on standard error."""


def run(*words: str, folder: Path) -> Done:
    """One command of memplan, as it is typed."""
    command = [sys.executable, "-m", "memplan", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, cwd=folder, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith(("error", "  hint"))]
    return Done(code=done.returncode, out=done.stdout, said=" ".join(said)[:300])


def emitted(setup: Path, to: str, folder: Path) -> tuple[Path | None, str]:
    """The first file that ``memplan emit`` names, and why there is none."""
    folder.mkdir(exist_ok=True)
    done = run("emit", str(setup), "--to", to, "--out", str(folder), folder=folder)
    return (Path(done.out.split()[0]), "") if done.code == 0 else (None, done.said)


def beside(setup: Setup, file: Path) -> list[str]:
    """Options that the file has no word for, as they are typed beside it."""
    found = read_config(file).values
    empty = JobSpec(target=setup.job.target)
    words: list[str] = []
    for field in fields(JobSpec):
        value = getattr(setup.job, field.name)
        read = found.get(field.name, getattr(empty, field.name))
        # A job that names no optimizer has AdamW, which files write out.
        is_usual = field.name == "optimizer" and value is None
        if field.name in _NOT_TYPED or value == read or is_usual:
            continue
        adapters = file.parent / ADAPTERS
        words += typed(field.name, adapters.name if field.name == "lora" and adapters.exists() else value)
    return words


def typed(name: str, value: Any) -> list[str]:
    """An option of the command."""
    option = f"--{name.replace('_', '-')}"
    return [option] if value is True else [option, str(value)]


def traced(words: Sequence[str], folder: Path) -> tuple[dict[str, int], str]:
    """Peaks of ``memplan estimate``, and why there are none."""
    done = run("estimate", *words, "--json", folder=folder)
    if done.code != 0 and not done.out.startswith("{"):
        return {}, done.said
    peak = json.loads(done.out).get("peak") or {}
    names = ("device_bytes", "reserved_bytes", "allocated_bytes")
    return {name: peak[name] for name in names if name in peak}, done.said


def again(setup: Path, to: str, file: Path) -> tuple[list[str], dict[str, int], str]:
    """Trace what a file says: options that were typed beside it, the peaks, what went wrong."""
    made = load_setup(setup)
    job = made.job
    if to in TARGETS:
        target, options = _written_target(made, to, file.parent), _code_options(job, to)
    else:
        target, options = f"preset:{job.target.name}", beside(made, file)  # type: ignore[union-attr]
    config = [] if to in TARGETS else ["--config", str(file)]
    peaks, problem = traced([target, "--gpu", made.gpu, *config, *options], file.parent)
    return options, peaks, problem


def _written_target(setup: Setup, to: str, folder: Path) -> str:
    job = setup.job
    content = (Path(__file__).parent / TARGETS[to]).read_text(encoding="utf-8")
    settings = {
        "preset": job.target.name,  # type: ignore[union-attr]
        "seq_len": job.seq_len,
        "grad_accum": job.grad_accum,
        "offload": job.parallel.offload,
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "target.py").write_text(content, encoding="utf-8")
    return str(folder / "target.py")


def _code_options(job: JobSpec, to: str) -> list[str]:
    """What the emitted file does not carry."""
    names = ["batch_size", "attention"]
    names += ["grad_accum", "clip_grad_norm", "parallel"] if to == "fsdp2" else []
    empty = JobSpec(target=job.target)
    values = {name: getattr(job, name) for name in names}
    return [word for name, value in values.items() if value != getattr(empty, name) for word in typed(name, value)]


def loaded(setup: Path, to: str, file: Path) -> dict[str, str]:
    """Which release loaded the file; ``problem`` where it did not, or understood something else."""
    job = load_setup(setup).job
    command = [sys.executable, str(Path(__file__).parent / "load.py"), to, str(file), str(job.parallel.ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        return {"problem": f"not loaded: {last[0][:200]}"}
    found = json.loads(done.stdout.splitlines()[-1])
    meant = _meant(job, to)
    wrong = [f"{name} {value}, not {meant[name]}" for name, value in found["says"].items() if value != meant[name]]
    return {"loaded": found["release"]} | ({"problem": f"understood: {'; '.join(wrong)}"} if wrong else {})


def _meant(job: JobSpec, to: str) -> dict[str, Any]:
    """What a framework should understand, as ``load.py`` says it."""
    parallel = job.parallel
    is_whole = to in ("deepspeed", "axolotl") or parallel.data.startswith("zero")
    half = job.precision.removesuffix("-mixed") if job.precision.endswith("-mixed") or is_whole else "none"
    return {
        "batch_size": job.batch_size,
        "grad_accum": job.grad_accum,
        "clip_grad_norm": job.clip_grad_norm,
        "seq_len": job.seq_len,
        "half": "none" if half == "fp32" else half,
        "checkpointed": job.checkpoint == "full",
        "ranks": parallel.ranks,
        "data": parallel.data,
        "offload": parallel.offload,
        "reshard": parallel.reshard,
    }
