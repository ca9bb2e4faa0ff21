"""``memplan init``: what it writes is a project, and nothing that was there changes."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from memplan.cli.app import main
from memplan.errors import EstimateError, ExitCode, UsageError
from memplan.gate.saved import load_entries
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import FileTarget, JobSpec, ScriptTarget
from memplan.measure import compose
from memplan.measure.records import Estimate, RecordedEstimate, Verdict
from memplan.project.read import load_project
from memplan.project.records import Amount, Policy
from memplan.project.write import init_project, section
from memplan.units import GIB, parse_size
from tests.report.example_estimates import FITS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def model(): ...\n")
    return tmp_path


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """The jobs that were traced; what is written does not depend on it."""
    asked: list[JobSpec] = []

    def estimate(spec: JobSpec, profiles: tuple[GpuProfile, ...], **_: object) -> tuple[RecordedEstimate, ...]:
        asked.append(spec)
        return tuple(RecordedEstimate(estimate=on(profile), history=None) for profile in profiles)

    monkeypatch.setattr(compose, "estimate", estimate)
    return asked


def on(profile: GpuProfile) -> Estimate:
    """A figure of the job on a GPU that it fits."""
    peak = replace(FITS.peak, device_bytes=3 * GIB, low_bytes=3 * GIB, high_bytes=3 * GIB + 1)
    return replace(FITS, gpu=replace(FITS.gpu, name=profile.name, usable_bytes=profile.usable_bytes), peak=peak)


def _fails(spec: JobSpec, *_: object, **__: object) -> None:
    raise EstimateError("model() raised ValueError: no", where=f"{spec.target}:3")


def _has_no_answer(*_: object, **__: object) -> tuple[RecordedEstimate, ...]:
    unknown = replace(FITS, verdict=Verdict.UNKNOWN, not_modelled=("aten.odd has no answer",))
    return (RecordedEstimate(estimate=unknown, history=None),)


@pytest.mark.parametrize(
    ("answer", "says"), [(_fails, "model() raised ValueError: no"), (_has_no_answer, "aten.odd has no answer")]
)
def test_a_job_that_cannot_be_traced_is_not_written(
    answer: Callable[..., object], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compose, "estimate", answer)
    assert main(["init", "model.py"]) == 3
    out, err = capsys.readouterr()
    assert "nothing was written: put right what keeps this job from being traced" in out
    assert f"left out model.py: {says}" in err
    assert not Path("memplan.toml").exists()


def test_options_become_keys(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--batch-size", "4", "--input", "x=float32[B,3]", "--input", "y=int64[B]", "--parallel", "fsdp=8"]
    more = ["--offload-activations", "--timeout", "5m", "--lora", "r=4", "--clip-grad-norm", "1.5"]
    assert main(["init", "model.py:model", "--gpu", "A100-40GB", "--gpu", "t4", *options, *more]) == 0
    out, err = capsys.readouterr()
    text = Path("memplan.toml").read_text()
    assert text in out
    assert "wrote to memplan.toml" in out
    assert "next: memplan gate" in out
    assert err == ""
    [found] = load_project(None).jobs
    assert (found.name, found.gpus, found.timeout) == ("model", ("a100-40g", "t4"), 300.0)
    assert found.spec.target == FileTarget(path=Path("model.py"), factory="model")
    assert (found.spec.batch_size, str(found.spec.parallel), found.spec.clip_grad_norm) == (4, "fsdp=8", 1.5)
    assert [each.name for each in found.spec.inputs] == ["x", "y"]
    assert found.spec.offload_activations
    assert found.spec.lora is not None


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("model.py", "model"), ("train.models:build", "models"), ("preset:gpt2", "gpt2"), ("hf:org/name", "name"),
        ("hf:deep/hf", "hf"), ("hf:.", "here"),
    ],
)  # fmt: skip
def test_a_job_is_named_after_its_target(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, name: str) -> None:
    (folder / "here" / "deep" / "hf").mkdir(parents=True)
    (folder / "here" / "model.py").write_text("")
    monkeypatch.chdir(folder / "here")
    assert main(["init", target]) == 0
    assert load_project(None).jobs[0].name == name
    Path("memplan.toml").unlink()
    assert main(["init", target, "--name", "other"]) == 0  # The baseline of the first one is there still.
    assert load_project(None).jobs[0].name == "other"


PYPROJECT = "# mine\r\n[build-system]\r\nrequires = [ 'x' ]   # and mine\r\n\r\n[tool.other]\r\na = 1"


def test_what_was_there_stays_as_it_is(folder: Path) -> None:
    (folder / "pyproject.toml").write_bytes(PYPROJECT.encode())
    assert main(["init", "model.py"]) == 0
    raw = (folder / "pyproject.toml").read_bytes().decode()
    assert raw.startswith(PYPROJECT + "\r\n\r\n[tool.memplan]\r\n")
    assert raw.count("\n") == raw.count("\r\n")
    assert load_project(None).jobs[0].name == "model"


def test_a_section_that_is_there_is_added_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("[tool.memplan]\n")
    assert main(["init", "model.py"]) == 0
    assert (folder / "pyproject.toml").read_text().startswith("[tool.memplan]\n\n[[tool.memplan.job]]\n")
    assert "growth is not judged" in capsys.readouterr().out
    [found] = load_project(None).jobs
    assert (found.gpus, found.policy.max_increase) == (("h100-80g",), None)


PROJECT = """# ours
gpus = ["t4"]
baseline = "figures.json"

[[job]]
name = "model"
target = "model.py"
batch-size = 2
"""


def test_jobs_are_added_to_those_that_are_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "memplan.toml").write_text(PROJECT)
    assert main(["init"]) == 0
    assert "nothing to add to memplan.toml" in capsys.readouterr().out
    assert (folder / "memplan.toml").read_text() == PROJECT
    assert main(["init", "model.py", "--batch-size", "4"]) == 0
    assert (folder / "memplan.toml").read_text().startswith(PROJECT)
    first, second = load_project(None).jobs
    assert (first.name, second.name, second.spec.batch_size) == ("model", "model-2", 4)
    assert (second.gpus, second.policy.max_increase) == (("t4",), Amount(share=0.02))
    assert set(load_entries(folder / "figures.json")) == {("model-2", "t4")}


def test_what_is_found_is_traced_and_becomes_a_project_with_its_baseline(
    folder: Path, traced: list[JobSpec], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text("import torch\nloss = torch.ones(1)\nloss.backward()\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "model.py").write_text("def model(): ...\n")
    (folder / "deep").mkdir()
    (folder / "deep" / "net.py").write_text("def model(): ...\n")
    (folder / "config").mkdir()
    (folder / "config" / "config.json").write_text('{"model_type": "gpt2"}')
    (folder / "tools.py").write_text("def helper(): ...\n")
    assert main(["init", "--gpu", "l4", "--gpu", "t4"]) == 0
    out, err = capsys.readouterr()
    assert "tracing model.py, train.py, deep/net.py, hf:config" in err
    project = load_project(None)
    assert [job.name for job in project.jobs] == ["model", "train", "net", "config"]
    assert {job.gpus for job in project.jobs} == {("l4", "t4")}
    budget = Policy(max_peak=parse_size("3.1GiB"), max_increase=Amount(share=0.02))
    assert {job.policy for job in project.jobs} == {budget}
    assert isinstance(project.jobs[1].spec.target, ScriptTarget)
    assert project.baseline is not None
    assert len(load_entries(project.baseline)) == 8
    assert "net: l4 3.00 GiB FITS, t4 3.00 GiB FITS" in out
    assert main(["gate", "--no-cache"]) == 0


def test_a_program_keeps_its_arguments(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\ntorch.ones(1).backward()\n")
    assert main(["init", "train.py", "--", "--lr", "1e-3"]) == 0
    assert main(["init", "--", "torchrun", "--nproc-per-node", "2", "train.py"]) == 0
    first, second = load_project(None).jobs
    assert isinstance(first.spec.target, ScriptTarget)
    assert first.spec.target.arguments == ("--lr", "1e-3")
    assert str(second.spec.parallel) == "ddp=2"


def test_a_file_that_cannot_take_it_stays_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("tool = {}\n")
    assert main(["init", "model.py"]) == 2
    assert "cannot stand at the end of pyproject.toml" in capsys.readouterr().err
    assert (folder / "pyproject.toml").read_text() == "tool = {}\n"
    (folder / "pyproject.toml").write_text("[tool\n")
    assert main(["init", "model.py"]) == 2
    assert "pyproject.toml cannot be read" in capsys.readouterr().err


def test_without_a_target_there_is_something_to_fill_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").unlink()
    assert main(["init"]) == 0
    (folder / "model.py").write_text("def model(): ...\n")
    assert "add a job to memplan.toml" in capsys.readouterr().out
    with pytest.raises(UsageError, match="no job"):
        load_project(None)
    text = (folder / "memplan.toml").read_text()
    head, _, example = text.partition("# [[job]]")
    (folder / "memplan.toml").write_text(head + ("# [[job]]" + example).replace("\n# ", "\n").removeprefix("# "))
    [found] = load_project(None).jobs
    assert (found.name, found.gpus, found.spec.batch_size) == ("train", ("h100-80g",), 8)


def test_a_name_needs_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--name", "x", "--gpu", "nothing"]) == 2
    err = capsys.readouterr().err
    assert "give its TARGET" in err
    assert "unknown GPU 'nothing'" in err
    assert not Path("memplan.toml").exists()


words = st.text(st.characters(codec="utf-8"), max_size=12)
plain = st.dictionaries(st.text("abc-", min_size=1, max_size=4), words | st.booleans() | st.integers(0, 9), max_size=3)


@given(before=plain, job=plain, name=words)
def test_any_text_is_written_so_that_toml_reads_it(
    before: dict[str, object], job: dict[str, object], name: str
) -> None:
    file = Path("pyproject.toml")
    text = tomlkit.dumps({"tool": {"x": before}}) + "# last"
    file.write_text(text, encoding="utf-8", newline="")
    table = {"name": name, **job}
    _, added = init_project(Path(), [name], [table])
    whole = file.read_bytes().decode()
    found = tomllib.loads(whole)
    assert whole.startswith(text)
    assert whole.endswith(added.replace("\n", "\r\n") if "\r\n" in text else added)
    assert found["tool"]["x"] == before
    assert found["tool"]["memplan"]["job"] == [table]
    assert tomllib.loads(section([name], [table]))["gpus"] == [name]


def test_nothing_is_written_beside_a_job_that_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It could never be read again; a fuzzer found the file half adopted."""
    text = 'gpus = ["t4"]\n[[job]]\nname = "small"\ntarget = 0\n'
    (folder / "memplan.toml").write_text(text)
    assert main(["init", "model.py"]) == ExitCode.USAGE
    assert (folder / "memplan.toml").read_text() == text
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "job 1 (small): target: expected text, found 0" in shown.err
