"""``memplan validate`` in process, with the library call played; the reports are read back."""

import dataclasses
import json
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch

from memplan.cli.app import main
from memplan.report.validate.json import DOCUMENT
from memplan.report.validate.text import render
from memplan.validate import calibrate, compose
from memplan.validate.compare import compare
from memplan.validate.records import AllocationStream, Cause, MeasuredRun, Peaks, RealRun, Validation
from tests.contract.goldens import derived
from tests.report.example_estimates import FITS
from tests.validate.profiles import H200


def stream(sizes: list[int], what: str) -> AllocationStream:
    return AllocationStream(
        sizes=array("q", sizes),
        causes=array("l", [0] * len(sizes)),
        known=(Cause(what, "layers.3.mlp", "model.py:41"),),
        marks=(1,),
        phases=array("b", [0] + [1] * (len(sizes) - 1)),
    )


REAL = stream([512, 2048, 777, -777, -2048], "aten.mm (workspace)")
VALIDATION = Validation(
    device=H200,
    profile_note="profile h200, by its name",
    estimate=FITS,
    predicted=Peaks(1000, 2048, 4096, 500_004_096),
    run=RealRun(
        measured=MeasuredRun(
            peaks=Peaks(1000, 2000, 4096, None), stream=REAL, retries=2, context_bytes=500 << 20, notes=("a note",)
        ),
        steps=6,
        seconds=1.25,
    ),
    alignment=compare(stream([512, 2048, -2048], "aten.mm"), REAL),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def play(spec: Any, **options: Any) -> Validation:
        calls.append({"spec": spec, **options})
        return VALIDATION

    monkeypatch.setattr(compose, "validate", play)
    (tmp_path / "model.py").write_text("def model(): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return calls


def text(**options: Any) -> str:
    return "\n".join(line.plain for line in render(VALIDATION, **options))


def test_options_reach_the_library(asked: list[dict[str, Any]]) -> None:
    words = [
        "--device",
        "cuda:1",
        "--steps",
        "7",
        "--batch-size",
        "4",
        "--precision",
        "bf16",
        "--compile",
        "inductor",
        "--force",
        "--seconds",
        "9",
    ]
    assert main(["validate", "model.py", *words, "--keep-snapshot", "run.pickle"]) == 0
    (call,) = asked
    assert (call["device"], call["steps"], call["force"], call["seconds"]) == ("cuda:1", 7, True, 9.0)
    assert call["keep"] == Path("run.pickle")
    assert (call["spec"].batch_size, call["spec"].precision, call["spec"].compile) == (4, "bf16", "inductor")
    assert call["spec"].provenance["batch_size"] == "--batch-size"


@pytest.mark.usefixtures("asked")
def test_text_and_json_in_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "model.py", "-f", "text", "-f", "json=out.json"]) == 0
    assert "predicted - measured" in capsys.readouterr().out
    assert json.loads(Path("out.json").read_text())["command"] == "validate"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["model.py", "--steps", "0"], "--steps must be between"),
        (["model.py", "--seconds", "-1"], "--seconds must be"),
        (["model.py", "--out", "x.toml"], "--out goes with --calibrate"),
        (["model.py", "--calibrate"], "takes no target"),
        (["--calibrate", "--json", "--batch-size", "2"], "--batch-size, --json would change nothing"),
        (["model.py", "--compile", "fast"], "--compile must be one of eager, aot_eager, inductor"),
        (["model.py", "--keep-snapshot", "nowhere/x.pickle"], "--keep-snapshot: cannot write"),
        (["--calibrate", "--out", "nowhere/x.toml"], "--out: cannot write"),
        (["model.py", "--precision", "fp64"], "--precision must be one of"),
        ([], "a target is missing"),
    ],
)
def test_wrong_options_exit_2(
    asked: list[dict[str, Any]], words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", *words]) == 2
    assert complaint in capsys.readouterr().err
    assert not asked


def test_calibrate_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def play(device: str, **options: Any) -> Any:
        calls.append((device, options["profile_out"], options["timeout"]))
        raise SystemExit(0)

    monkeypatch.setattr(calibrate, "calibrate", play)
    assert main(["validate", "--calibrate", "--device", "cuda:2", "--out", "x.toml", "--timeout", "5"]) == 0
    assert calls == [("cuda:2", Path("x.toml"), 5.0)]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_calibrating_without_cuda_exits_2_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--calibrate"]) == 2
    assert "PyTorch sees no CUDA device here" in capsys.readouterr().err


def test_errors_are_signed_and_exact_is_said() -> None:
    lines = {line.split()[0]: line for line in text(quiet=True).splitlines() if line.startswith("  ")}
    assert "exact" in lines["requested"]
    assert "+2.400 %  (+48 B)" in lines["allocated"]
    assert "exact" in lines["reserved"]
    assert "not known" in lines["device"]


def test_differences_name_both_sides() -> None:
    shown = text()
    assert "3 predicted, 5 came: 60.00 % the same" in shown
    assert "step 1, forward" in shown
    assert "777 B  aten.mm (workspace)" in shown
    assert "predicted nothing" in shown
    assert "the allocator gave its cache back 2 times" in shown
    assert "the history covers 1 of 6 steps" in shown
    assert "a note" in shown


def test_almost_all_is_not_all() -> None:
    nearly = dataclasses.replace(VALIDATION.alignment, predicted=100_000, real=100_000, matched=99_999)
    found = dataclasses.replace(VALIDATION, alignment=nearly)
    assert "99.99 % the same" in "\n".join(line.plain for line in render(found))


def test_a_failed_run_says_so() -> None:
    run = dataclasses.replace(VALIDATION.run, out_of_memory="CUDA out of memory. Tried to allocate 2 GiB")
    found = dataclasses.replace(VALIDATION, run=run)
    assert "the run ended out of memory" in "\n".join(line.plain for line in render(found))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_longer_than_the_page(width: int) -> None:
    assert all(line.cell_len <= width for line in render(VALIDATION, width=width, explain=True))


def test_json_holds_the_same_figures() -> None:
    found = json.loads(json.dumps(DOCUMENT.plain(VALIDATION), allow_nan=False))
    derived("validate").validate(found)
    assert found["predicted"] == {
        "requested_bytes": 1000, "allocated_bytes": 2048, "reserved_bytes": 4096, "device_bytes": 500_004_096,
    }  # fmt: skip
    assert found["measured"]["device_bytes"] is None
    assert found["difference"] == {
        "requested_bytes": 0, "allocated_bytes": 48, "reserved_bytes": 0, "device_bytes": None,
    }  # fmt: skip
    assert found["alignment"]["matched_events"] == 3
    assert found["alignment"]["exact"] is False
    first = found["alignment"]["differences"][0]["real"][0]
    assert (first["bytes"], first["cause"]["what"]) == (777, "aten.mm (workspace)")
    assert found["estimate"]["command"] == "estimate"
    assert found["device"]["versions"]["driver"] == "580.159.03"


def sizes_without_a_name(value: Any, key: str = "") -> list[str]:
    """Keys of integers in the tens of bytes and more that neither end in ``bytes`` nor say what they count."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in sizes_without_a_name(item, name)]
    if isinstance(value, list):
        return [found for item in value for found in sizes_without_a_name(item, key)]
    return [key] if isinstance(value, int) and value >= 512 and not key.endswith("bytes") else []


def test_every_json_key_that_holds_bytes_says_so() -> None:
    found = DOCUMENT.plain(VALIDATION)
    # The estimate within is the document of another command, with tests of its own.
    del found["estimate"]
    assert {"threads_per_sm"} >= set(sizes_without_a_name(json.loads(json.dumps(found))))
