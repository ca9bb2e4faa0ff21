"""Liger-Kernel's published peaks: rows are read, matched with releases, and run again byte for byte."""

import csv
import importlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("MEMPLAN_DATA", ROOT.parent / "shared" / "data"))
TABLE = DATA / "kernels" / "liger_all_benchmark_data.csv"

COLUMNS = (
    "kernel_name", "kernel_provider", "kernel_operation_mode", "metric_name", "metric_unit", "x_name", "x_label",
    "x_value", "y_value_50", "y_value_20", "y_value_80", "extra_benchmark_config_str", "gpu_name", "timestamp",
    "liger_version",
)  # fmt: skip


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of the benchmark."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return lambda name: importlib.import_module(f"published.liger{name and '.'}{name}")


def line(**given: Any) -> dict[str, Any]:
    defaults = {
        "kernel_name": "softmax", "kernel_provider": "liger", "kernel_operation_mode": "full",
        "metric_name": "memory", "metric_unit": "MB", "x_name": "N", "x_label": "hidden size", "x_value": "128",
        "y_value_50": "1.5", "extra_benchmark_config_str": json.dumps({"M": 2048, "dtype": "torch.float32"}),
        "gpu_name": "NVIDIA H100 80GB HBM3", "timestamp": "2025-04-30 16:11:25", "liger_version": "0.5.8",
    }  # fmt: skip
    return {**dict.fromkeys(COLUMNS, ""), **defaults, **given}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes the table that the benchmark reads."""
    monkeypatch.setenv("MEMPLAN_DATA", str(tmp_path))

    def write(*lines: dict[str, Any]) -> None:
        (tmp_path / "kernels").mkdir()
        with (tmp_path / "kernels" / TABLE.name).open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(lines)

    return write


@pytest.fixture
def releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Callable[[str], ModuleType]
) -> Callable[..., None]:
    """Makes unpacked releases: version → name of a script → its text, and modules of the library."""
    monkeypatch.setenv("MEMPLAN_LIGER", str(tmp_path / "liger"))
    module("releases")._folders.cache_clear()

    def make(version: str, *, scripts: dict[str, str], library: tuple[str, ...] = (), text: str = "softmax") -> None:
        folder = tmp_path / "liger" / f"liger_kernel-{version}"
        for name, source in scripts.items():
            file = folder / "benchmark" / "scripts" / f"benchmark_{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        for name in ("__init__", *library):
            file = folder / "src" / "liger_kernel" / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return make


def test_there_are_no_cases_without_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Callable[[str], ModuleType]
) -> None:
    monkeypatch.setenv("MEMPLAN_DATA", str(tmp_path))
    assert module("").cases() == ([], [])


def test_rows_without_a_release_are_excluded_and_say_so(
    table: Callable[..., None], monkeypatch: pytest.MonkeyPatch, module: Callable[[str], ModuleType]
) -> None:
    monkeypatch.delenv("MEMPLAN_LIGER", raising=False)
    module("releases")._folders.cache_clear()
    table(line(), line(metric_name="speed"))
    found, excluded = module("").cases()
    assert found == []
    assert [each.reason for each in excluded] == ["no release at hand has its script"]


def test_figures_are_bytes_of_mebibytes(table: Callable[..., None], module: Callable[[str], ModuleType]) -> None:
    table(line(y_value_50="1.5"), line(y_value_50="0.00244140625", kernel_provider="torch"))
    rows = module("rows").read_rows()
    assert [row.measured for row in rows] == [1_572_864, 2_560]
    assert [row.providers for row in rows] == [("liger", "torch")] * 2
    assert len({row.id for row in rows}) == 2


def test_a_row_runs_with_the_first_release_from_its_day_on_that_knows_its_options(
    table: Callable[..., None], releases: Callable[..., None], module: Callable[[str], ModuleType]
) -> None:
    releases("0.5.8", scripts={"softmax": '"M" "dtype" "N"'})
    releases("0.5.9", scripts={"softmax": '"hidden_size" "dtype" "N"'})
    releases("0.5.10", scripts={"softmax": '"M" "dtype" "N"'})
    releases("0.6.0", scripts={"softmax": '"M" "dtype" "N"'})
    table(line())
    release = module("releases").release_of(module("rows").read_rows()[0])
    assert release.scripts.name == release.library.name.replace("0.5.9", "0.5.10") == "liger_kernel-0.5.10"


def test_a_script_that_was_rewritten_since_is_the_last_that_knows_the_options(
    table: Callable[..., None], releases: Callable[..., None], module: Callable[[str], ModuleType]
) -> None:
    releases("0.5.6", scripts={"softmax": '"M" "dtype" "N"'})
    releases("0.5.8", scripts={"softmax": '"M" "dtype" "N"'})
    releases("0.5.9", scripts={"softmax": '"hidden_size" "dtype" "N"'})
    releases("0.5.10", scripts={"softmax": '"M" "dtype" "BT"'})
    table(line())
    release = module("releases").release_of(module("rows").read_rows()[0])
    assert (release.library.name, release.scripts.name) == ("liger_kernel-0.5.9", "liger_kernel-0.5.8")


def test_the_library_is_the_first_with_what_the_script_imports(
    table: Callable[..., None], releases: Callable[..., None], module: Callable[[str], ModuleType]
) -> None:
    script = 'from liger_kernel.ops import softmax\n"M", "dtype", "N"'
    releases("0.5.8", scripts={"other": ""}, library=("ops",))
    releases("0.5.9", scripts={"other": ""}, library=("ops",), text="")
    releases("0.5.10", scripts={"other": ""}, library=("ops",))
    releases("0.6.0", scripts={"softmax": script}, library=("ops",))
    table(line())
    release = module("releases").release_of(module("rows").read_rows()[0])
    assert (release.library.name, release.scripts.name) == ("liger_kernel-0.5.10", "liger_kernel-0.6.0")


@pytest.fixture(scope="module")
def published() -> tuple[list[Any], list[Any]]:
    """The published rows, where the research data and the releases are at hand."""
    pytest.importorskip("triton")
    if not TABLE.exists() or "MEMPLAN_LIGER" not in os.environ:
        pytest.skip("needs MEMPLAN_DATA and MEMPLAN_LIGER")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        importlib.import_module("published.liger.releases")._folders.cache_clear()
        found: tuple[list[Any], list[Any]] = importlib.import_module("published.liger").cases()
    return found


def test_every_memory_row_is_a_case_or_excluded_once(published: tuple[list[Any], list[Any]]) -> None:
    with TABLE.open(newline="") as file:
        expected = sum(row["metric_name"] == "memory" for row in csv.DictReader(file))
    ids = Counter(each.id for group in published for each in group)
    assert ids.total() == len(ids) == expected


def test_a_row_runs_with_the_release_that_brought_it(published: tuple[list[Any], list[Any]]) -> None:
    """Releases from 0.5.4 on hold the table of their day; 0.5.4's own has the rows of all before."""
    releases = importlib.import_module("published.liger.releases")
    tables = [folder / "benchmark" / "data" / "all_benchmark_data.csv" for folder in releases._folders()]
    brought: dict[tuple[str, ...], Path] = {}
    for table in filter(Path.exists, tables):
        for row in _lines(table):
            brought.setdefault(_measurement(row), table.parents[2])
    oldest, lines, cases = next(iter(brought.values())), _lines(TABLE), {each.id for each in published[0]}
    pairs = [
        (releases.release_of(row).library, brought[_measurement(lines[int(row.id.rpartition("-L")[2]) - 2])])
        for row in importlib.import_module("published.liger.rows").read_rows()
        if row.id in cases
    ]
    later = [(ran, came) for ran, came in pairs if came != oldest]
    assert len(later) > 300
    assert [ran.name for ran, _ in later] == [came.name for _, came in later]


def _lines(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def _measurement(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("kernel_name", "kernel_provider", "metric_name", "x_value", "timestamp"))


@pytest.mark.filterwarnings("default")  # what transformers and the releases warn of is theirs
@pytest.mark.parametrize(
    "name",
    [
        "liger-cross_entropy-liger-full-V4096-",
        "liger-cross_entropy-huggingface-full-V4096-",
        "liger-rms_norm-liger-full-H1024-",
        "liger-rms_norm-huggingface-full-H1024-",
        "liger-swiglu-liger-full-T1024-",
    ],
)
def test_peaks_are_those_measured(published: tuple[list[Any], list[Any]], name: str) -> None:
    (case,) = [each for each in published[0] if each.id.startswith(name)]
    assert abs(case.predict().allocated - case.measured) <= case.resolution
