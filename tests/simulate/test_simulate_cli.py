"""``memplan simulate`` as it is typed: options, complaints, reports, and the whole way once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.cli.app import main
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.records import GpuFacts
from memplan.report.simulate.text import render, spark
from memplan.simulate import compose
from memplan.simulate.compose import Scenario
from memplan.simulate.lengths import Fixed, Uniform
from memplan.simulate.recommend import recommend
from memplan.simulate.records import Simulation
from memplan.units import GIB, MIB
from tests.contract.goldens import obey
from tests.simulate.runs import EXPANDABLE, NATIVE, run_of
from tests.simulate.workloads import workload

ROOT = Path(__file__).parents[2]


def simulation(*runs):
    runs = runs or (run_of(*NATIVE, 3 * GIB), run_of(*EXPANDABLE, 2 * GIB), run_of("compacting", None, GIB + MIB))
    costs = {run.name: 2500.0 for run in runs}
    return Simulation(
        workload=workload(([MIB], [("alloc", 0, 0, 5 * MIB), ("free", 0, 0)]), [100, 355]),
        gpu=GpuFacts(name="h100-80g", title="H100", total_bytes=80 * GIB, usable_bytes=79 * GIB),
        seed=3,
        policies=runs,
        recommendation=recommend(runs, costs),
        passed_bytes=7 * MIB,
        without_leftovers=run_of(*EXPANDABLE, GIB + 100 * MIB),
        microseconds=costs,
        memplan_version="0.1.0",
    )


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What the library call was given; it answers with a simulation made by hand."""
    calls = []

    def stand_in(source, profile, scenario, *, timeout, cache, progress):
        calls.append((source, profile, scenario, timeout))
        return simulation()

    monkeypatch.setattr(compose, "simulate", stand_in)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    (tmp_path / "model.py").write_text("def model(): ...\n")
    return calls


def run(*words):
    return main(["simulate", "model.py", "--gpu", "h100-80g", *words])


def test_without_options_1000_steps_of_the_jobs_own_length(asked):
    assert run() == 0
    [(source, profile, scenario, timeout)] = asked
    assert isinstance(source, JobSpec)
    assert source.target == FileTarget(path=Path("model.py"))
    assert (profile.name, timeout) == ("h100-80g", 600.0)
    assert scenario == Scenario()
    assert (scenario.steps, scenario.lengths, scenario.compact_at) == (1000, Fixed(length=None), 0.2)


def test_every_option_reaches_the_scenario(asked):
    words = ["--steps", "50", "--seq-len-dist", "uniform:8-64", "--seed", "9", "--alloc-conf", "max_split_size_mb: 64"]
    words += [
        "--alloc-conf",
        "expandable_segments:True",
        "--buckets",
        "2MiB,8MiB",
        "--compact-at",
        "0.5",
        "--batch-size",
        "4",
    ]
    assert run(*words) == 0
    [(source, _, scenario, _)] = asked
    assert source.batch_size == 4
    assert scenario == Scenario(
        steps=50,
        lengths=Uniform(low=8, high=64),
        seed=9,
        confs=("max_split_size_mb:64", "expandable_segments:True"),
        buckets=(2 * MIB, 8 * MIB),
        compact_at=0.5,
    )


def test_everything_that_is_wrong_is_said_at_once(asked, capsys):
    words = ["--steps", "0", "--seq-len-dist", "uniform:9-3", "--alloc-conf", "max_splt_size_mb:64"]
    words += ["--buckets", "8MiB,2MiB"]
    assert run(*words, "--compact-at", "1.5", "--precision", "fp12") == 2
    told = capsys.readouterr().err
    for complaint in (
        "--steps must be", "runs backwards", "max_splt_size_mb", "must increase", "--compact-at must be", "--precision",
    ):  # fmt: skip
        assert complaint in told
    assert asked == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["model.py", "--gpu", "cpu"], "no caching allocator"),
        (["model.py", "--gpu", "h100-80g", "--seq-len", "8", "--seq-len-dist", "fixed:9"], "give one"),
        (["none.pickle"], "there is no file"),
        (["model.pickle", "--batch-size", "4"], "--batch-size would change nothing"),
        (["model.pickle", "--seq-len-dist", "fixed:9"], "--seq-len-dist would change nothing"),
    ],
)
def test_what_does_not_go_together_is_refused(asked, capsys, words, complaint):
    Path("model.pickle").write_bytes(b"")
    assert main(["simulate", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_snapshot_needs_no_gpu(asked):
    Path("memory.pickle").write_bytes(b"")
    assert main(["simulate", "memory.pickle"]) == 0
    assert asked[0][:2] == (Path("memory.pickle"), None)


def test_the_recommendation_stands_first_and_alone_when_quiet(asked, capsys):
    assert run("-q") == 0
    quiet = capsys.readouterr().out
    assert quiet.startswith("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n")
    assert run() == 0
    full = capsys.readouterr().out
    assert full.index("export PYTORCH") < full.index("native")
    assert "leaves 7.00 MiB for the next" in full
    assert all(len(line) <= 80 for line in full.splitlines())


def test_json_is_one_document(asked, capsys):
    assert run("--json") == 0
    document = json.loads(capsys.readouterr().out)
    obey("simulate", document)
    assert (document["schema_version"], document["command"], document["seed"]) == ("1.0", "simulate", 3)
    assert document["recommendation"]["conf"] == "expandable_segments:True"
    native = document["policies"][0]
    assert native["peak"] == {"requested_bytes": GIB, "allocated_bytes": GIB, "reserved_bytes": 3 * GIB}
    assert native["fragmentation"]["total"] == pytest.approx(2 / 3)
    assert native["per_step"]["reserved_bytes"] == [3 * GIB]
    assert document["policies"][2]["conf"] is None
    assert document["lengths"] == {"shortest": 100, "longest": 355, "mean": 227.5}


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_asked(width):
    lines = render(simulation(run_of("a name that is much too long for its column", "x:1", 3 * GIB, failed=12)),
                   width=width, explain=True)  # fmt: skip
    assert all(line.cell_len <= width for line in lines)


def test_a_device_that_is_too_small_for_all_is_said():
    text = "\n".join(line.plain for line in render(simulation(run_of(*NATIVE, 3 * GIB, failed=12))))
    assert "runs out of memory" in text
    assert "OOM at step 12" in text


def test_the_highest_tick_is_the_largest_share():
    assert spark([0.0, 0.25, 0.5], 0.5) == "▁▅█"  # 3.5 of 7 heights rounds to the even one.
    assert spark([0.0], 0.0) == "▁"


@pytest.mark.slow
def test_the_whole_way_without_torch_in_the_parent(tmp_path):
    """A real job: its code runs in a child, and the parent could not even import torch."""
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "model = lambda: torch.nn.Linear(1024, 1024)\n"
        "def batch(batch_size, seq_len=512):\n    return torch.randn(batch_size, seq_len, 1024)\n"
        "def loss(output, batch):\n    return output.sum()\n"
    )
    guard = "import sys; sys.modules['torch'] = None\nfrom memplan.cli.app import main; sys.exit(main())"
    words = ["simulate", "net.py", "--gpu", "h100-80g", "--steps", "20", "--seq-len-dist", "fixed:300", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", guard, *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    obey("simulate", document)
    assert document["lengths"]["longest"] == 300
    assert [policy["name"] for policy in document["policies"]][:2] == ["native", "expandable"]
    # Weight, bias, gradients of both, and AdamW's two moments of both: all of 4 MiB or 4 KiB; input, output.
    states, activation = 4 * (4 * MIB + 4096), 300 * 1024 * 4
    assert all(policy["peak"]["requested_bytes"] >= states + activation for policy in document["policies"])
    assert all(policy["floor_bytes"] is None for policy in document["policies"][:-1])


@pytest.mark.parametrize(
    ("threshold", "code", "said"),
    [
        ("reserved>4GiB", 0, ""),
        ("reserved>2.5GiB", 1, "reserved of native is 3.00 GiB, over 2.50 GiB"),
        ("fragmentation > 100%", 0, ""),
        ("fragmentation>10", 2, "is no threshold"),
        ("waste>10%", 2, "write fragmentation>10%"),
    ],
)
def test_a_figure_beyond_its_threshold_exits_1(asked, capsys, threshold, code, said):
    assert main(["simulate", "model.py", "--gpu", "h100", "--fail-on", threshold]) == code
    assert said in capsys.readouterr().err


def test_the_first_conf_is_the_setting_that_is_judged(asked, capsys):
    words = [
        "simulate",
        "model.py",
        "--gpu",
        "h100",
        "--alloc-conf",
        "expandable_segments:True",
        "--fail-on",
        "reserved>2.5GiB",
    ]
    assert main(words) == 0


def test_buckets_of_any_size(asked):
    assert main(["simulate", "model.py", "--gpu", "h100", "--buckets", "64B,256B,1KiB,4KiB,16KiB"]) == 0
    assert asked[0][2].buckets == (64, 256, 1024, 4096, 16384)
