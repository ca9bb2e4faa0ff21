"""A sweep: one row per job and GPU in the order of the file, whatever fails, here and on a real Dask cluster."""

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joblib import parallel_config

from memplan.cli.app import main
from memplan.errors import ExitCode, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget
from memplan.plan.recommend.records import Search
from memplan.plan.sweep import flow
from memplan.plan.sweep.backends import carried_by
from memplan.plan.sweep.flow import run_task, sweep
from memplan.plan.sweep.records import SweepRequest, SweepRow, SweepTask
from memplan.project.overrides import Overrides
from memplan.project.read import load_project
from tests.contract.goldens import obey
from tests.report.example_recommendations import answer

MODEL = """
import torch
def model(): return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
def batch(batch_size, seq_len=None): return torch.randn(batch_size, 64)
def loss(output, batch): return output.mean()
def broken(): raise RuntimeError("no such weights")
"""
JOBS = """
gpus = ["h100-80g", "t4"]
[[job]]
name = "tiny"
target = "model.py"
batch-size = 8
[[job]]
name = "broken"
target = "model.py:broken"
gpus = ["t4"]
alloc-conf = "expandable_segments:True"
"""
ROWS = [("tiny", "h100-80g"), ("tiny", "t4"), ("broken", "t4")]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "JOBS.toml").write_text(JOBS)
    return tmp_path / "JOBS.toml"


def fake(task: SweepTask) -> SweepRow:
    """What a worker does, without its search: other tests look at that."""
    found, error = (answer(), "") if task.job == "tiny" else (None, "no such weights")
    return SweepRow(job=task.job, gpu=task.profile.name, gpus=task.search.gpus, answer=found, error=error)


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[SweepTask]:
    """Tasks come back in the reverse order, each answered by ``fake``."""
    seen: list[SweepTask] = []

    def run_all(function: Any, tasks: list[SweepTask], *, timeout: float) -> Iterator[SweepRow]:
        assert function is run_task
        assert timeout >= len(tasks) * 60
        seen.extend(tasks)
        return map(fake, reversed(tasks))

    monkeypatch.setattr(flow, "run_all", run_all)
    return seen


def test_rows_stand_in_the_order_of_the_file(project: Path, carried: list[SweepTask]) -> None:
    told: list[str] = []
    found = sweep(load_project(project), SweepRequest(search=Search(budget_seconds=7.0)), told.append)
    assert [(row.job, row.gpu) for row in found.rows] == ROWS
    assert [row.state for row in found.rows] == ["changed", "changed", "unknown"]
    assert found.exit_code == ExitCode.UNKNOWN
    assert found.notes == ("broken: alloc-conf is not looked at, the search replays PyTorch's own settings",)
    assert told == [
        "0 of 3 searches", "1 of 3 searches: broken on t4", "2 of 3 searches: tiny on t4",
        "3 of 3 searches: tiny on h100-80g",
    ]  # fmt: skip
    assert {(task.search.budget_seconds, task.search.gpus, task.search.processes) for task in carried} == {(7.0, 1, 2)}
    assert {task.folder for task in carried} == {project.parent}


def test_a_job_is_searched_for_its_own_ranks(project: Path, carried: list[SweepTask]) -> None:
    project.write_text('gpus = ["l4"]\n[[job]]\nname = "a"\ntarget = "model.py"\nparallel = "fsdp=8,tp=2"')
    sweep(load_project(project), SweepRequest())
    sweep(load_project(project), SweepRequest(gpus=4))
    assert [task.search.gpus for task in carried] == [16, 4]


def test_what_came_before_the_cluster_broke_down_is_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(_: Any, tasks: list[SweepTask], *, timeout: float) -> Iterator[SweepRow]:
        yield fake(tasks[1])
        raise ConnectionResetError("the scheduler is gone")

    monkeypatch.setattr(flow, "run_all", breaking)
    found = sweep(load_project(project), SweepRequest())
    assert [(row.job, row.gpu) for row in found.rows] == ROWS
    assert [row.state for row in found.rows] == ["unknown", "changed", "unknown"]
    assert found.rows[0].error == "the backend failed: ConnectionResetError: the scheduler is gone"


def test_all_backends_give_the_same_whether_they_tell_of_each_result_or_not() -> None:
    for backend in ("multiprocessing", "loky"):
        with parallel_config(backend=backend, n_jobs=2):
            assert sorted(flow.run_all(abs, [-3, 2, -1], timeout=60.0)) == [1, 2, 3]


def lost(folder: Path, job: str) -> SweepTask:
    """A task whose worker does not see the project: it ends before anything is traced."""
    [tiny] = load_project(folder / "JOBS.toml", Overrides(jobs=["tiny"])).jobs
    return SweepTask(
        job=job, spec=tiny.spec, profile=load_profile("t4"), search=Search(), timeout=60.0,
        folder=folder / "elsewhere",
    )  # fmt: skip


def test_a_real_dask_cluster_carries_tasks_and_brings_back_what_is_wrong_with_them(project: Path) -> None:
    distributed = pytest.importorskip("distributed")
    tasks = [lost(project.parent, str(number)) for number in range(3)]
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, carried_by("dask", cluster.scheduler_address, 1):
        workers = set(flow.run_all(lambda _: os.getpid(), range(8), timeout=60.0))
        rows = list(flow.run_all(run_task, tasks, timeout=60.0))
    assert workers
    assert os.getpid() not in workers
    assert sorted(row.job for row in rows) == ["0", "1", "2"]
    assert all("has no folder" in row.error and row.seconds > 0 for row in rows)


@pytest.mark.slow  # Dask tries three workers before it gives up.
def test_a_task_that_ends_its_worker_is_a_row_too(project: Path) -> None:
    pytest.importorskip("distributed")
    tasks = [lost(project.parent, "a")]
    with carried_by("dask", None, 1):
        rows = flow._collect(tasks, flow.run_all(os._exit, [1], timeout=30.0), lambda _: None)  # type: ignore[arg-type]
    assert rows[0].error == "no result came: its worker is gone, or never began"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_a_sweep_recommends_what_recommend_does(
    project: Path, backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    assert main(["sweep", "JOBS.toml", "--backend", backend, "--time-limit", "20s", "--json"]) == 3
    content = json.loads(capsys.readouterr().out)
    obey("sweep", content)
    assert [(row["job"], row["gpu"]) for row in content["rows"]] == ROWS
    assert "no such weights" in content["rows"][2]["error"]
    for row in content["rows"][:2]:
        obey("recommend", row["recommendation"])
        assert main(["recommend", "model.py", "--batch-size", "8", "--gpu", row["gpu"], "--json"]) == 0
        alone = json.loads(capsys.readouterr().out)
        for key in ("baseline", "best", "global_batch", "limit_bytes"):
            assert row["recommendation"][key] == alone[key]


def test_ray_is_asked_for_by_its_extra(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("ray"):
        pytest.skip("ray is installed")
    assert main(["sweep", "JOBS.toml", "--backend", "ray"]) == 2
    assert "pip install 'memplan[ray]'" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "what:is:this"])
def test_a_scheduler_that_is_not_there(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("memplan.plan.sweep.backends.CONNECT_SECONDS", 0.5)
    with pytest.raises(UsageError, match="no Dask scheduler answers at"), carried_by("dask", address, 1):
        pass


def test_a_cluster_that_joblib_would_leave_aside_is_refused() -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    with (
        cluster,
        pytest.raises(UsageError, match="a cluster of one processor carries nothing"),
        carried_by("dask", cluster.scheduler_address, 4),
    ):
        pass


@pytest.mark.parametrize(
    ("words", "complaints"),
    [
        (["--backend", "slurm"], ["--backend must be one of loky, dask, ray, not 'slurm'"]),
        (["--address", "tcp://a:1"], ["--address is of a cluster: give --backend dask or ray too"]),
        (["--allow", "lora,luck"], ["--allow takes", "not 'luck'"]),
        (
            ["--gpus", "0", "--jobs", "0", "--time-limit", "0"],
            ["--gpus must", "--jobs must", "--time-limit takes"],
        ),
        (["--gpu", "t5", "--job", "b", "-f", "xml"], ["--gpu: unknown GPU 't5'", "no job 'b'", "--format must be"]),
    ],
)
def test_wrong_words_are_told_at_once(
    project: Path, words: list[str], complaints: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "JOBS.toml", *words]) == 2
    err = capsys.readouterr().err
    assert [each for each in complaints if each not in err] == []


def test_the_command_writes_text_and_json(
    project: Path, carried: list[SweepTask], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--gpus", "8", "--gpu", "h200", "--job", "tiny", "--allow", "lora, precision", "--jobs", "4"]
    assert main(["sweep", "JOBS.toml", *words, "-f", "text", "-f", "json=out.json"]) == 0
    [task] = carried
    assert (task.search.allow, task.search.processes, task.search.gpus) == (("lora", "precision"), 4, 8)
    assert "8 x h200" in capsys.readouterr().out
    content = json.loads(Path("out.json").read_text())
    obey("sweep", content)
    assert content["rows"][0]["recommendation"]["best"]["changes"] == ["--checkpoint full"]
    assert FileTarget(path=Path("model.py")) == task.spec.target
