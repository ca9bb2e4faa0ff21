"""The interval: what its ends earn, what they are made of, and that the committed tables give what is shipped."""

import dataclasses
import json
import math
import random
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.answer import judge
from memplan.measure.document import ESTIMATE
from memplan.measure.interval import (
    allocated_interval,
    classify,
    interval,
    read_residuals,
    reserved_interval,
    shipped_residuals,
)
from memplan.measure.jitter import Jitter
from memplan.measure.local import estimate_here
from memplan.measure.records import Band, IntervalBasis, Verdict
from memplan.report.estimate.interval import CLASSES, interval_facts, interval_line
from memplan.units import Bytes
from tests.contract.goldens import golden, obey
from tests.report.example_estimates import FITS, make_estimate
from tests.support.benchmarks import benchmark

ROOT = Path(__file__).parents[2]


conformal, measured_runs, coverage = benchmark("conformal"), benchmark("measured_runs"), benchmark("interval_coverage")
VALUES = st.floats(-1, 1, allow_nan=False)
MANY = st.lists(VALUES, min_size=20, max_size=60, unique=True)


def residual(number: int, value: float, workload: str = "full", source: str = "a") -> Any:
    # Another script has imported a ``Residual`` of its own; only the attributes count.
    fields = {"id": f"{workload}{source}{number}", "source": source, "workload": workload, "figure": "allocated"}
    return conformal.Residual(**fields, value=value)


# What ends are worth.


@given(MANY, st.sampled_from([50, 80, 90]))
def test_of_any_runs_nine_in_ten_lie_between_the_ends_of_the_others(values: list[float], percent: int) -> None:
    """The law of split conformal prediction, counted out: each of n + 1 runs in turn is the one to come."""
    held = 0
    for index, value in enumerate(values):
        ends = conformal.quantiles(values[:index] + values[index + 1 :], percent)
        held += ends is not None and ends.low <= value <= ends.high
    assert held >= percent / 100 * len(values)


def test_the_ends_are_no_wider_than_the_law_needs() -> None:
    """With n runs at most 2 / (n + 1) beyond the level: the law alone would also be kept by endless ends."""
    chance = random.Random(1)
    values = [chance.gauss(0, 1) for _ in range(199)]
    held = sum(
        conformal.quantiles(values[:index] + values[index + 1 :]).hold(value) for index, value in enumerate(values)
    )
    assert 0.9 <= held / len(values) <= 0.9 + 2 / len(values)


def test_nineteen_runs_have_ends_and_eighteen_have_none() -> None:
    assert conformal.quantiles(range(18)) is None
    assert conformal.quantiles(range(19)) == (0, 18)
    assert conformal.quantiles(range(39)) == (1, 37)
    assert conformal.fewest() == 19


@given(MANY)
def test_too_much_and_too_little_are_treated_alike(values: list[float]) -> None:
    low, high = conformal.quantiles(values)
    assert conformal.quantiles([-value for value in values]) == (-high, -low)


@given(st.lists(st.lists(VALUES, min_size=1, max_size=30), min_size=2, max_size=5))
def test_pooled_ends_hold_those_of_every_class(classes: list[list[float]]) -> None:
    low, high = conformal.pooled(classes)
    for values in classes:
        own = conformal.quantiles(values) or (min(values), max(values))
        assert low <= own[0]
        assert high >= own[1]


def test_pooled_ends_go_beyond_the_class_furthest_off_by_its_distance_from_the_next() -> None:
    assert conformal.pooled([[-1, 2], [-3, 5], [0, 1]]) == (-5, 8)
    assert conformal.pooled([[-1, 2]]) == (-2, 4)


@given(MANY, st.lists(VALUES, max_size=100))
def test_kernels_and_other_classes_dilute_nothing(values: list[float], others: list[float]) -> None:
    # Two sources that agree.
    own = [residual(number, value, source=source) for number, value in enumerate([*values, -1, 1]) for source in "ab"]
    earned = conformal.earn(own, "full", "allocated")
    assert not earned.pooled
    more = [residual(number, value / 1e6, "kernel") for number, value in enumerate(others)]
    more += [residual(number, value, "lora") for number, value in enumerate(others)]
    assert conformal.earn([*own, *more], "full", "allocated") == earned
    without = [each for each in more if each.workload != "kernel"]
    assert conformal.earn_pooled([*own, *more], "allocated") == conformal.earn_pooled([*own, *without], "allocated")


def test_a_class_with_few_runs_is_pooled_and_a_processor_is_not() -> None:
    rows = [residual(number, number / 100) for number in range(30)]
    few = [residual(0, 0.5, "lora"), residual(0, 0.0, "cpu"), residual(0, 0.0, "kernel")]
    assert conformal.earn([*rows, *few], "lora", "allocated").pooled
    assert conformal.earn([*rows, *few], "cpu", "allocated") is None
    assert conformal.earn([*rows, *few], "kernel", "allocated") is None
    assert conformal.earn([*rows, *few], "full", "reserved") is None


def test_a_class_of_one_source_is_pooled_however_many_runs_it_has() -> None:
    rows = [residual(number, number / 100) for number in range(100)]
    assert conformal.earn(rows, "full", "allocated").pooled
    assert not conformal.earn([*rows, *alike(rows, "b")], "full", "allocated").pooled


def alike(rows: list[Any], source: str) -> list[Any]:
    return [dataclasses.replace(each, id=f"{source}{each.id}", source=source) for each in rows]


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=15), min_size=2, max_size=4))
def test_a_level_is_only_said_where_it_held_sources_that_were_left_out(runs: list[list[int]]) -> None:
    rows = [
        residual(number, value / 100, source=source)
        for source, values in zip("abcd", runs, strict=False)
        for number, value in enumerate(values * 5)
    ]
    earned = conformal.earn(rows, "full", "allocated")
    held, tried = conformal.coverage(rows, "full", "allocated", conformal.other_source)
    if earned is not None and not earned.pooled and tried == len(rows):
        assert held >= 0.9 * tried


def test_sources_that_disagree_have_no_level_together() -> None:
    """Twenty runs of each are enough for the law of runs, and forty of forty lie outside of what the others say."""
    rows = [residual(number, number / 1000, source="a") for number in range(20)]
    rows += [residual(number, 1 + number / 1000, source="b") for number in range(20)]
    assert conformal.quantiles([each.value for each in rows]) is not None
    assert conformal.earn(rows, "full", "allocated").pooled


def test_coverage_counts_only_what_was_not_known() -> None:
    """Two sources that agree but for the last of one, which lies beyond even twice what the other says."""
    rows = [residual(number, (number - 20) / 1000) for number in range(41)]
    rows = [*rows, *alike(rows, "b"), residual(41, 1.0, source="b")]
    alone = conformal.coverage(rows, "full", "allocated", conformal.other_run)
    # Of 82, the ends are the fourth from each side. Every value is there twice: of the lowest, four lie beyond the
    # fourth of the others; of the highest, two and the last.
    assert alone == (83 - 4 - 3, 83)
    assert conformal.coverage(rows, "full", "allocated", conformal.other_source) == (82, 83)
    # Without the class there is nothing left.
    assert conformal.coverage(rows, "full", "allocated", conformal.other_class) == (0, 0)


# What is shipped.


def test_what_is_shipped_and_published_is_what_the_committed_tables_give() -> None:
    residuals = measured_runs.read_residuals()
    assert (ROOT / "memplan" / "measure" / "residuals.toml").read_text() == coverage.table(residuals)
    text = (ROOT / "docs" / "accuracy.md").read_text()
    assert coverage.page(text, residuals) == text


def test_the_shipped_ends_hold_nine_in_ten_of_their_own_runs() -> None:
    table = shipped_residuals()
    for (workload, figure), entry in table.entries.items():
        values = [
            math.exp(each.value)
            for each in measured_runs.read_residuals()
            if (each.workload, each.figure) == (workload, figure)
        ]
        if not workload.startswith("pooled"):
            assert entry.runs == len(values)
        if entry.low is not None and entry.high is not None and values:
            assert sum(entry.low <= value <= entry.high for value in values) >= table.level * len(values)
            assert len(values) >= conformal.fewest()


def test_tables_of_published_runs_are_read(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "accuracy.csv").write_text(
        "id,source,workload,metric,measured,resolution,requested,allocated,reserved,failure\n"
        "one,them,lora,allocated,2000,1,900,1000,1100,\n"
        "two,them,lora,reserved,2200,1,900,1000,1100,\n"
        "bad,them,lora,allocated,2000,1,0,0,0,it failed\n"
    )
    (tmp_path / "results" / "cpu_truth.txt").write_text(
        "model   real peak   predicted   error  peak at\nresnet  60,904,856  30,452,428  +0.000%  aten.x | aten::x\n"
    )
    (tmp_path / "gpu" / "results").mkdir(parents=True)
    run = {
        "predicted": {"requested_bytes": 1, "allocated_bytes": 2, "reserved_bytes": 4, "device_bytes": 5},
        "measured": {"requested_bytes": None, "allocated_bytes": 4, "reserved_bytes": 8, "device_bytes": 9},
        "estimate": {"peak": {"interval": {"class": "full"}}},
    }
    for name, tiny in (("a", False), ("b", True)):
        content = {"tiny": tiny, "profile": {"kind": "cuda"}, "workloads": {"net": run, "broken": {"error": "x"}}}
        content["environment"] = {"packages": {"torch": "2.11.0"}}
        (tmp_path / "gpu" / "results" / f"{name}.json").write_text(json.dumps(content))
    found = {(each.id, each.workload, each.figure) for each in measured_runs.read_residuals(tmp_path)}
    assert found == {
        ("one", "lora", "allocated"), ("two", "lora", "reserved"), ("cpu_truth-resnet", "cpu", "allocated"),
        ("a-net", "full", "allocated"), ("a-net", "full", "reserved"),
    }  # fmt: skip
    assert {round(math.exp(each.value), 9) for each in measured_runs.read_residuals(tmp_path)} == {2.0}


def test_every_file_of_measured_runs_says_something() -> None:
    """GPU results were once read by other keys than theirs, and nothing of them counted."""
    runs = [each.id for each in measured_runs.read_residuals()]
    files = {path.stem for path in (ROOT / "benchmarks" / "gpu" / "results").glob("*.json")}
    assert files
    assert all(any(run.startswith(file) for run in runs) for file in files)


def test_the_table_is_read_without_anything_heavy() -> None:
    code = (
        "import sys; from memplan.measure.interval import shipped_residuals; assert shipped_residuals().entries;"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


# What an interval is made of.

TABLE_TEXT = """
level = 0.9
[classes.lora.allocated]
runs = 40
sources = 2
low = 0.9
high = 1.25
[classes.full.allocated]
runs = 30
sources = 1
low = 0.98
high = 1.01
[classes.full.reserved]
runs = 19
sources = 1
low = 0.95
high = 1.05
[classes.inference.reserved]
runs = 7
sources = 1
[classes.pooled.allocated]
runs = 77
sources = 3
low = 0.8
high = 1.5
"""
TABLE = read_residuals(TABLE_TEXT)
A100 = dataclasses.replace(
    load_profile("a100-80g"), context_low_bytes=10, context_bytes=20, context_high_bytes=40, usable_bytes=10_000
)


def replayed(allocated: int, reserved: int) -> Any:
    return SimpleNamespace(peak_allocated=allocated, peak_reserved=reserved, growth=0)


def replays(
    least: tuple[int, int], memory: tuple[int, int], needed: tuple[int, int], most: tuple[int, int], **facts: Any
) -> Any:
    counts = {"parameters": 100, "trainable_parameters": 100, "weight_bytes": 400} | facts
    weights = SimpleNamespace(role="parameter", nbytes=counts.pop("weight_bytes"))
    ops = tuple(SimpleNamespace(name=name) for name in counts.pop("ops", ()))
    trace = SimpleNamespace(model=SimpleNamespace(**counts), storages=(weights,), assumptions=(), ops=ops)
    return SimpleNamespace(
        lifetimes=SimpleNamespace(trace=trace),
        otherwise=(),
        least=replayed(*least), memory=replayed(*memory), needed=replayed(*needed), most=replayed(*most),
        allocated=memory[0], held_back=0, jitter=Jitter(),
    )  # fmt: skip


PLAIN = replays(*[(800, 1000)] * 4)


def test_the_ends_of_a_class_stretch_its_figures() -> None:
    # Allocated residuals say nothing of fragmentation, which the low end then goes without.
    assert interval(A100, PLAIN, TABLE.basis("lora")) == (720 + 10, 1250 + 40)
    assert interval(A100, PLAIN, TABLE.basis("full")) == (950 + 10, 1050 + 40)
    # Too few of its own, and none at all.
    assert interval(A100, PLAIN, TABLE.basis("inference")) == interval(A100, PLAIN, TABLE.basis("cnn"))
    assert interval(A100, PLAIN, TABLE.basis("cnn")) == (640 + 10, 1500 + 40)
    # Nothing that was measured on GPUs is said of a CPU.
    assert interval(A100, PLAIN, TABLE.basis("cpu")) == (800 + 10, 1000 + 40)


def test_ends_of_both_figures_hold_both_and_those_of_reserved_bytes_may_be_of_all_runs() -> None:
    text = TABLE_TEXT + "[classes.pooled.reserved]\nruns = 60\nsources = 3\nlow = 0.99\nhigh = 1.3\n"
    lora, full, other = (read_residuals(text).basis(name) for name in ("lora", "full", "checkpointed"))
    assert (lora.figure, lora.level, lora.runs, lora.low_ratio, lora.high_ratio) == ("reserved", 0.9, 40, 0.9, 1.3)
    assert (full.figure, full.runs, full.low_ratio, full.high_ratio) == ("reserved", 30, 0.95, 1.05)
    assert (other.figure, other.level, other.low_ratio, other.high_ratio) == ("reserved", None, 0.8, 1.5)


def test_what_the_order_leaves_open_is_reserved_beyond_the_ends() -> None:
    shaken = SimpleNamespace(**vars(PLAIN) | {"jitter": Jitter(below=Bytes(100), above=Bytes(200))})
    assert interval(A100, shaken, TABLE.basis("full")) == (855 + 10, 1260 + 40)
    # Without fragmentation there is no order to speak of.
    assert interval(A100, shaken, TABLE.basis("lora"))[0] == interval(A100, PLAIN, TABLE.basis("lora"))[0]


def test_a_cache_that_grows_takes_what_the_device_has() -> None:
    grown = SimpleNamespace(**vars(PLAIN) | {"memory": SimpleNamespace(**vars(PLAIN.memory) | {"growth": 1})})
    low, high = interval(A100, PLAIN, TABLE.basis("full"))
    assert high < A100.usable_bytes
    assert interval(A100, grown, TABLE.basis("full")) == (low, A100.usable_bytes)


def test_bases_say_what_they_are() -> None:
    lora, inference, cnn, cpu = (TABLE.basis(name) for name in ("lora", "inference", "cnn", "cpu"))
    assert (lora.level, lora.runs, lora.own_runs, lora.sources, lora.figure) == (0.9, 40, 40, 2, "allocated")
    assert (inference.level, inference.runs, inference.own_runs) == (None, 77, 7)
    assert (cnn.level, cnn.runs, cnn.own_runs, cnn.sources) == (None, 77, 0, 3)
    assert (cpu.level, cpu.runs, cpu.low_ratio, cpu.high_ratio) == (None, 0, 1.0, 1.0)


def test_work_space_of_unknown_size_fills_no_more_than_the_room() -> None:
    convolutions = replays((700, 900), (800, 1000), (700, 900), (2000, 2500))
    basis = TABLE.basis("lora")
    low, high = interval(A100, convolutions, basis)
    assert (low, high) == (630 + 10, 3125 + 40)
    small = dataclasses.replace(A100, usable_bytes=1200)
    assert interval(small, convolutions, basis) == (low, 1200)
    assert judge(1020, 1200, 1200) is Verdict.FITS
    # What the step cannot do without must fit with all that may come upon it.
    assert interval(dataclasses.replace(A100, usable_bytes=1100), convolutions, basis)[1] == 1125 + 40


SIZES = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)).map(lambda sizes: (min(sizes), max(sizes)))


@given(
    SIZES, SIZES, SIZES, SIZES,
    st.floats(0.01, 3), st.floats(0.01, 3), st.sampled_from(["", "allocated", "reserved"]), st.integers(0, 2**41),
)  # fmt: skip
def test_every_interval_holds_its_prediction(
    least: tuple[int, int], memory: tuple[int, int], needed: tuple[int, int], most: tuple[int, int],
    low_ratio: float, high_ratio: float, figure: str, usable: int,
) -> None:  # fmt: skip
    basis = IntervalBasis(workload="x", figure=figure, low_ratio=low_ratio, high_ratio=high_ratio)
    profile = dataclasses.replace(A100, usable_bytes=usable)
    measured = replays(least, memory, needed, most)
    low, high = interval(profile, measured, basis)
    assert low <= memory[1] + profile.context_bytes <= high
    for band, predicted in ((allocated_interval, memory[0]), (reserved_interval, memory[1])):
        ends = band(profile, measured, basis)
        assert ends.low_bytes <= predicted <= ends.high_bytes


def test_bands_of_the_allocator_are_the_interval_without_a_context() -> None:
    basis = TABLE.basis("full")
    assert reserved_interval(A100, PLAIN, basis) == Band(low_bytes=950, high_bytes=1050)
    assert allocated_interval(A100, PLAIN, basis) == Band(low_bytes=760, high_bytes=840)


def test_ends_on_one_side_of_the_prediction_reach_to_it() -> None:
    above = IntervalBasis(workload="x", figure="reserved", low_ratio=1.1, high_ratio=1.2)
    assert interval(A100, PLAIN, above) == (1020, 1200 + 40)
    below = dataclasses.replace(above, low_ratio=0.8, high_ratio=0.9)
    assert interval(A100, PLAIN, below) == (800 + 10, 1020)


# Which class a job is of.


@pytest.mark.parametrize(
    ("options", "facts", "workload"),
    [
        ({}, {}, "full"),
        ({"checkpoint": "full"}, {}, "checkpointed"),
        ({}, {"trainable_parameters": 50}, "full"),
        ({}, {"trainable_parameters": 49}, "lora"),
        ({"checkpoint": "full"}, {"trainable_parameters": 1}, "lora"),
        ({}, {"trainable_parameters": 1, "weight_bytes": 200}, "lora"),
        ({}, {"trainable_parameters": 1, "weight_bytes": 199}, "qlora"),
        ({"mode": "inference"}, {"trainable_parameters": 1, "weight_bytes": 199}, "inference"),
        ({"mode": "generate"}, {}, "inference"),
        ({"mode": "inference", "compile": "inductor"}, {}, "compiled"),
    ],
)
def test_classes(options: dict[str, Any], facts: dict[str, Any], workload: str) -> None:
    spec = JobSpec(target=FileTarget(path=Path("x.py")), **options)
    assert classify(spec, A100, replays(*[(800, 1000)] * 4, **facts)) == workload


def test_the_device_and_its_libraries_come_before_the_job() -> None:
    spec = JobSpec(target=FileTarget(path=Path("x.py")))
    unsure = (700, 900), (800, 1000), (700, 900), (2000, 2500)
    assert classify(spec, A100, replays(*unsure, ops=["aten.convolution.default"])) == "cnn"
    # Kernels of PyTorch's own are known between bounds, too: a language model's adapters stay what they are.
    sorting = replays(*unsure, ops=["aten.sort.default", "memplan::window"], trainable_parameters=1)
    assert classify(spec, A100, sorting) == "lora"
    assert classify(spec, load_profile("cpu"), PLAIN) == "cpu"
    assert classify(spec, load_profile("mi300x"), PLAIN) == "rocm"


NET = """
import torch

def model():
    net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, {outputs}))
    {freeze}
    return net

def batch(batch_size):
    return torch.randn(batch_size, 512)

def loss(output, batch):
    return output.square().mean()
"""


@pytest.mark.parametrize(
    ("freeze", "outputs", "options", "workload"),
    [
        ("", 512, {}, "full"),
        ("net[0].requires_grad_(False)", 64, {}, "lora"),
        ("net[0].requires_grad_(False)", 64, {"precision": "bf16"}, "lora"),
        ("", 64, {"mode": "inference"}, "inference"),
    ],
)
def test_estimates_say_what_their_interval_rests_on(
    tmp_path: Path, freeze: str, outputs: int, options: dict[str, Any], workload: str
) -> None:
    target = tmp_path / "net.py"
    target.write_text(NET.format(freeze=freeze, outputs=outputs))
    spec = JobSpec(target=FileTarget(path=target), batch_size=64, **options)
    profile = load_profile("a100-80g")
    gpu, cpu = estimate_here(spec, [profile, load_profile("cpu")])
    assert gpu.peak.basis == shipped_residuals().basis(workload)
    assert cpu.peak.basis == shipped_residuals().basis("cpu")
    # The work here is all the allocator's: no library takes what nobody knows.
    context = profile.context_high_bytes or profile.context_bytes
    assert gpu.peak.high_bytes == math.ceil(gpu.peak.reserved_bytes * gpu.peak.basis.high_ratio) + context


QLORA = """
import bitsandbytes as bnb
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = bnb.nn.Linear4bit(512, 512, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").bfloat16()
        self.adapter = torch.nn.Linear(512, 8, dtype=torch.bfloat16)
    def forward(self, x):
        return self.base(x).sum() + self.adapter(x).sum()

def model():
    return Net()

def batch(batch_size):
    return torch.zeros(batch_size, 512, dtype=torch.bfloat16, requires_grad=True)

def loss(output, batch):
    return output
"""


def test_a_model_in_four_bits_is_known_by_its_weights(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("bitsandbytes", minversion="0.46")
        (tmp_path / "qlora.py").write_text(QLORA)
        spec = JobSpec(target=FileTarget(path=tmp_path / "qlora.py"))
        (answer,) = estimate_here(spec, [load_profile("a100-80g")])
    assert answer.peak.basis
    assert answer.peak.basis.workload == "qlora"


# What the report says of it.


@pytest.mark.parametrize(
    ("basis", "line"),
    [
        (TABLE.basis("lora"), "90 % interval from 40 measured runs of LoRA fine-tuning, 2 sources"),
        (TABLE.basis("full"), "90 % interval from 30 measured runs of full training, one source"),
        (TABLE.basis("inference"), "interval from 77 measured runs, 3 sources; 7 of inference"),
        (TABLE.basis("cnn"), "interval from 77 measured runs, 3 sources; none of CNNs or RNNs"),
        (TABLE.basis("cpu"), "interval from allocator and context alone; too few runs of training on a CPU"),
    ],
    ids=["own", "one", "few", "none", "nothing"],
)
def test_the_report_says_in_one_line_what_the_interval_rests_on(basis: IntervalBasis, line: str) -> None:
    assert [each.plain.strip() for each in interval_line(basis)] == [line]


def test_explaining_adds_the_figures_behind_it() -> None:
    text = " ".join(line.plain for line in interval_facts(TABLE.basis("lora"), 100))
    assert "allocated bytes -10.00 % to +25.00 % of predicted" in text
    assert interval_facts(None, 100) == interval_line(None) == []


@pytest.mark.parametrize("name", ["lora", "inference", "cpu"])
def test_the_json_report_says_it_too(name: str) -> None:
    basis = TABLE.basis(name)
    estimate = make_estimate(peak=dataclasses.replace(FITS.peak, basis=basis))
    found = ESTIMATE.plain(estimate)
    obey("estimate", found)
    told = found["peak"]["interval"]
    assert (told["level"], told["class"], told["runs"]) == (basis.level, name, basis.runs)
    properties = golden("estimate").schema["$defs"]["estimate"]["properties"]["peak"]["anyOf"][0]["properties"]
    assert set(told) == set(properties["interval"]["anyOf"][0]["properties"])


def test_every_class_of_jobs_has_words_and_stands_in_the_page() -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text().partition("## The interval")[2]
    told = {
        name.strip() for line in text.split("\n") if line.startswith("| ") for name in line.split("|")[1].split(",")
    }
    assert set(CLASSES) <= told


@pytest.mark.parametrize(("torch", "lines"), [("2.6.0", 1), ("2.13.0+cpu", 0), ("2.15.0", 0), ("unknown", 0)])
def test_a_release_older_than_any_that_was_measured_is_named(torch: str, lines: int) -> None:
    text = 'level = 0.9\n[classes.cpu.allocated]\nruns = 30\nsources = 2\nlow = 0.9\nhigh = 1.1\ntorch = "2.13.0"\n'
    table = read_residuals(text)
    assert len(table.of_another_age(table.basis("cpu"), torch)) == lines
    assert table.of_another_age(table.basis("full"), "1.10") == ()
