"""The GPU benchmark's parts that need no GPU, and the results that one left behind."""

import argparse
import json
import random
import subprocess
import sys
from array import array
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import EstimateError
from memplan.validate.device import facts_here
from memplan.validate.records import AllocationStream, Cause, MeasuredRun, Peaks, RealRun
from tests.support.benchmarks import benchmark

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"
packing, workloads, compare, run = (benchmark(name, FOLDER) for name in ("packing", "workloads", "compare", "run"))
RESULTS = sorted((FOLDER / "results").glob("*.json"))
QUICK = ("mlp-big-batch", "checkpoint-dropout")
"""Workloads whose traces take a second; the others are held against their results by ``-m slow``."""
_SPACE = "cuDNN alone knows the work space of a convolution, which the interval holds"
EXCEPTED: dict[str, str] = {
    **dict.fromkeys(("unet", "diffusion", "gan", "volumes-conv3d"), _SPACE),
    "moe": "which expert takes how many tokens is the data's choice",
    "compiled": "what Triton's kernels of this GPU are fused of is Inductor's choice there",
}
"""Workload → why its prediction may be further off than the tolerance; each stands in docs/accuracy.md."""


def stream(sizes: list[int], marks: tuple[int, ...]) -> AllocationStream:
    return AllocationStream(
        sizes=array("q", sizes), causes=array("l", [0] * len(sizes)), known=(Cause("", "", ""),), marks=marks
    )


@given(st.lists(st.integers(-(2**40), 2**40)), st.data())
def test_packing_loses_nothing(sizes: list[int], data: st.DataObject) -> None:
    mark = data.draw(st.integers(0, len(sizes)))
    found = packing.unpack(json.loads(json.dumps(packing.pack(stream(sizes, (mark,))))))
    assert list(found.sizes) == sizes
    assert found.marks == (mark,)


def test_a_long_stream_is_cut_between_steps() -> None:
    packed = packing.pack(stream(list(range(1, 101)), (10, 40, 70)), most_events=75)
    assert (packed["events"], packed["marks"]) == (70, [10, 40])
    assert list(packing.unpack(packed).sizes) == list(range(1, 71))


def test_set_up_and_one_step_are_kept_however_long() -> None:
    packed = packing.pack(stream(list(range(1, 101)), (10, 90)), most_events=5)
    assert (packed["events"], packed["marks"]) == (90, [10])


def test_a_training_step_packs_small() -> None:
    chance = random.Random(1)
    layer = [chance.choice([2**20, 4096, 512, 8 * 2**20]) for _ in range(100)]
    step = (layer + [-size for size in reversed(layer)]) * 24
    assert len(packing.pack(stream(step * 5, tuple(range(0, 5 * len(step), len(step)))))["sizes"]) < 20_000


def test_every_workload_is_a_job_and_names_are_unique() -> None:
    names = [workload.name for workload in workloads.WORKLOADS]
    assert len(set(names)) == len(names) >= 24
    for workload in workloads.WORKLOADS:
        for tiny in (False, True):
            spec = workload.spec(tiny=tiny)
            assert not hasattr(spec.target, "path") or spec.target.path.is_file()
            assert spec.batch_size >= 1


def test_the_table_covers_what_trains_on_gpus() -> None:
    specs = [workload.spec() for workload in workloads.WORKLOADS]
    assert {spec.precision for spec in specs} == {"fp32", "bf16", "bf16-mixed", "fp16-mixed"}
    assert {spec.attention for spec in specs} == {"auto", "flash", "efficient", "cudnn", "math"}
    assert {spec.mode for spec in specs} == {"train", "inference", "generate"}
    assert {spec.optimizer_impl for spec in specs} == {"auto", "foreach", "fused", "loop"}
    assert {"adafactor", "sgd-momentum", "lion"} <= {spec.optimizer for spec in specs}
    assert any(spec.grad_accum > 1 and spec.clip_grad_norm for spec in specs)
    assert any(spec.checkpoint == "full" for spec in specs)


@pytest.fixture
def session(tmp_path: Path) -> Any:
    options = argparse.Namespace(
        out=tmp_path, tiny=True, part=None, commit="abc", budget=1e9, jobs=1, steps=None, timeout=9.0,
        seconds_per_workload=1.0,
    )  # fmt: skip
    return run.Session(facts_here("cpu"), options)


def _workload(name: str) -> Any:
    return next(workload for workload in workloads.WORKLOADS if workload.name == name)


def _fail(*_: object, **__: object) -> None:
    raise EstimateError("an op has no answer", where="model.py:3")


def test_the_truth_is_kept_where_a_prediction_fails(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RealRun(measured=MeasuredRun(peaks=Peaks(777), stream=stream([5, -5], (1,))), steps=4, seconds=0.1)
    asked: list[Any] = []
    monkeypatch.setattr(run, "predict", _fail)
    monkeypatch.setattr(run, "run_for_real", lambda spec, facts, limits, **_: asked.append(limits) or real)
    session.run([_workload("dqn"), _workload("llama-flash")])
    content = json.loads(session.path.read_text())
    found = content["workloads"]["dqn"]
    assert (found["stage"], found["measured"]["requested_bytes"], found["steps"]) == ("predict", 777, 4)
    assert "an op has no answer" in found["error"]
    assert list(packing.unpack(found["stream"]).sizes) == [5, -5]
    assert [limits.steps for limits in asked] == [run.BLIND_STEPS]
    # What needs another device is not even tried.
    assert "it needs a CUDA device" in content["workloads"]["llama-flash"]["error"]


def test_a_run_that_fails_loses_no_other(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "predict", _fail)
    monkeypatch.setattr(run, "run_for_real", _fail)
    session.run([_workload("dqn"), _workload("moe")])
    content = json.loads(session.path.read_text())
    assert {found["run_error"].splitlines()[0] for found in content["workloads"].values()} == {"an op has no answer"}
    assert content["environment"]["memplan_commit"] == "abc"
    assert compare.profile_of(content) == session.profile
    assert list(compare.rows(compare.load(session.path))) == []


def test_no_workload_begins_after_the_budget(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "predict", _fail)
    monkeypatch.setattr(run, "run_for_real", _fail)
    session.options.budget = -1
    session.run([_workload("dqn")])
    assert json.loads(session.path.read_text())["workloads"]["dqn"]["stage"] == "budget"


def test_rows_know_what_is_beyond_the_tolerance() -> None:
    row = compare.Row(name="x", kind="llm", errors={"requested": 0.02, "reserved": -0.04}, share=None)
    assert row.beyond() == ("requested",)
    assert "beyond tolerance: requested" in compare.line(row)
    assert "median 2.000 %" in compare.summary([row])


@pytest.mark.slow
def test_the_benchmark_runs_from_end_to_end_on_the_cpu(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "run.py"), "--out", str(tmp_path), "--device", "cpu", "--tiny"]
    command += ["--steps", "3", "--commit", "abc", "--only", "mlp-big-batch", "llama-flash"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    content = json.loads(path.read_text())
    assert content["environment"]["memplan_commit"] == "abc"
    found = content["workloads"]["mlp-big-batch"]
    assert found["measured"]["requested_bytes"] > 0
    assert found["run"]["steps"] == 3
    # The alignment leaves out what is as small as a Python number.
    assert found["stream"]["events"] >= found["alignment"]["real_events"] > 0
    # One that cannot run loses no other.
    assert content["workloads"]["llama-flash"]["stage"] == "predict"
    (row,) = compare.rows(compare.load(path))
    assert row.errors["requested"] == pytest.approx(0, abs=1e-3)
    assert row.share == pytest.approx(found["alignment"]["share"])


def _cases(names: tuple[str, ...] | None) -> list[Any]:
    cases = []
    for path in RESULTS:
        content = compare.load(path)
        for name, found in content["workloads"].items():
            if "measured" in found and not content["tiny"] and (names is None) == (name not in QUICK):
                cases.append(pytest.param(path, name, id=f"{path.stem}-{name}"))
    return cases or [pytest.param(None, "", marks=pytest.mark.skip(reason="no results are committed"))]


@pytest.mark.parametrize(("path", "name"), _cases(QUICK))
def test_quick_predictions_hold(path: Path, name: str) -> None:
    _check(path, name)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "name"), _cases(None))
def test_predictions_hold(path: Path, name: str) -> None:
    _check(path, name)


def _check(path: Path, name: str) -> None:
    content = compare.load(path)
    (row,) = compare.rows(content, [name])
    assert not row.failure
    reason = EXCEPTED.get(name) or _other_model_code(content, name)
    if reason and row.beyond():
        assert row.held or reason != _SPACE
        pytest.xfail(reason)
    assert not row.beyond(), row


def _other_model_code(content: Any, name: str) -> str:
    """Why a model that comes from a package may be another than the one that was measured; empty where it is the same.

    Under transformers 5.23 99.97 % of the events of `llama-bf16-mixed` are those measured with 5.17, under 5.24 97.4 %.
    """
    (needs,) = (workload.needs for workload in workloads.WORKLOADS if workload.name == name)
    measured = content["environment"]["packages"]
    changed = [
        f"{package} {measured[package]}, here {version(package)}"
        for package in needs
        if package in measured and _minor(measured[package]) != _minor(version(package))
    ]
    return f"the model's code is of another release: measured with {', '.join(changed)}" if changed else ""


def _minor(release: str) -> list[str]:
    return release.split(".")[:2]
