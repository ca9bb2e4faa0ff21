"""The pytest plugin as a user's test run sees it. What estimates is replaced: a job needs a GiB for each sample."""

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest

from memplan.pytest_plugin import estimates

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = "memplan.pytest_plugin.plugin"
ESTIMATOR = """
from dataclasses import replace
from memplan.errors import EstimateError
from memplan.gate.run import Answer
from memplan.pytest_plugin import estimates
from memplan.measure.records import Verdict
from tests.gate.cases import sized
from tests.report.example_estimates import UNKNOWN

GIB = 1 << 30

def answer(tasks, *, at_once, cache):
    [task] = tasks
    batch = task.job.spec.batch_size
    if batch == 13:
        return (Answer(task=task, error=EstimateError("the model cannot be built")),)
    found = sized(batch * GIB, usable=task.profiles[0].usable_bytes)
    found = UNKNOWN if batch == 7 else found
    gpu = replace(found.gpu, name=task.profiles[0].name)
    target = f"{task.job.spec.target.path}:{task.job.spec.target.factory}"
    return (Answer(task=task, estimates=(replace(found, gpu=gpu, target=target),)),)

estimates.run = answer
"""
MARKED = """
import pytest

@pytest.mark.limit_gpu_memory("{limit}", gpu="h100-80g", target="train.py:model", batch_size={batch})
def test_it():
    pass
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest(ESTIMATOR)
    pytester.makeini("[pytest]\n")
    (pytester.path / "train.py").write_text("def model(): ...\n")
    return pytester


OPTIONS = ("-p", PLUGIN, "--strict-markers", "-W", "error")


def run(tests: pytest.Pytester, *words: str) -> pytest.RunResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimates, "run", estimates.run)  # What the run's own conftest.py replaces.
        return tests.runpytest_inprocess(*OPTIONS, *words)


def run_alone(tests: pytest.Pytester, *words: str) -> pytest.RunResult:
    """In a process of its own, which shows what it imports and what it has workers do."""
    return tests.runpytest_subprocess(*OPTIONS, *words)


def test_a_failure_is_one_sentence_with_figures_and_owners(tests: pytest.Pytester) -> None:
    tests.makepyfile(MARKED.format(limit="70 GiB", batch=76))
    result = run(tests)
    result.assert_outcomes(failed=1)
    [sentence] = [line for line in result.outlines if line.startswith("predicted")]
    assert sentence.startswith("predicted 76.00 GiB on h100-80g, 6.00 GiB over the limit of 70 GiB: most is held by ")
    assert "lm_head (4.00 GiB of activations, modeling_llama.py:512)" in sentence
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(("batch", "outcome"), [(70, "passed"), (71, "failed")])
def test_the_limit_itself_is_allowed(tests: pytest.Pytester, batch: int, outcome: str) -> None:
    tests.makepyfile(MARKED.format(limit="70 GiB", batch=batch))
    run(tests).assert_outcomes(**{outcome: 1})


def test_what_the_gpu_cannot_hold_fails_whatever_the_limit(tests: pytest.Pytester) -> None:
    tests.makepyfile(MARKED.format(limit="200 GiB", batch=100))
    result = run(tests)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["predicted 100.00 GiB on h100-80g, 20.82 GiB over the 79.18 GiB usable*"])


def test_a_limit_may_be_left_out(tests: pytest.Pytester) -> None:
    tests.makepyfile(MARKED.format(limit="1 GiB", batch=79).replace('"1 GiB", ', ""))
    run(tests).assert_outcomes(passed=1)


def test_the_body_runs_after_its_estimate_and_its_failures_are_its_own(tests: pytest.Pytester) -> None:
    tests.makepyfile(MARKED.format(limit="70 GiB", batch=7 * 5).replace("pass", "assert 1 == 2"))
    result = run(tests)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])


def test_the_fixture_estimates_and_the_marker_limits_each(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("batch", [10, 30])
        @pytest.mark.limit_gpu_memory("20 GiB", gpu="h100-80g", precision="bf16")
        def test_limited(memplan_estimate, batch):
            found = memplan_estimate("train.py:model", batch_size=batch)
            assert (found.gpu.name, found.peak.device_bytes) == ("h100-80g", batch << 30)

        def test_free(memplan_estimate):
            first = memplan_estimate("train.py:model", gpu="a100-40g", batch_size=100)
            second = memplan_estimate("train.py:model", gpu="a100-40g", batch_size=101)
            assert second.peak.device_bytes - first.peak.device_bytes == 1 << 30
        """
    )
    result = run(tests)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["predicted 30.00 GiB on h100-80g, 10.00 GiB over the limit of 20 GiB*"])
    # The summary has every estimate, also those without a limit.
    result.stdout.fnmatch_lines(["* predicted GPU memory *", "*10.00 GiB of 20.00 GiB *train.py:model on h100-80g*"])
    assert sum("on a100-40g" in line for line in result.outlines) == 2


def test_every_gpu_has_its_marker_and_the_nearest_counts(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.limit_gpu_memory("5 GiB", gpu="h100-80g", target="train.py:model", batch_size=10)

        @pytest.mark.limit_gpu_memory("20 GiB", gpu="h100-80g", target="train.py:model", batch_size=10)
        def test_raised():
            pass

        @pytest.mark.limit_gpu_memory("8 GiB", gpu="a100-40g", target="train.py:model", batch_size=10)
        @pytest.mark.limit_gpu_memory("20 GiB", gpu="h100-80g", target="train.py:model", batch_size=10)
        def test_both():
            pass

        def test_module():
            pass
        """
    )
    result = run(tests)
    result.assert_outcomes(passed=1, failed=2)
    sentences = [line for line in result.outlines if line.startswith("predicted")]
    assert ["a100-40g" in sentences[0], "h100-80g" in sentences[1]] == [True, True]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ('"70 parsecs", gpu="h100-80g", target="train.py:model"', "'70 parsecs' is not a size"),
        ('70, gpu="h100-80g", target="train.py:model"', "not 70"),
        ('"70 GiB", target="train.py:model"', "no gpu"),
        ('"70 GiB", gpu="h1000", target="train.py:model"', "h1000"),
        ('"70 GiB", gpu="h100-80g", target="trian.py:model"', "did you mean train.py"),
        ('"70 GiB", gpu="h100-80g", target="train.py:model", batchsize=3', "batch_size?"),
        ('"70 GiB", gpu="h100-80g", target="train.py:model", max_peak="3GiB"', "max_peak: no option"),
        ('"70 GiB", gpu="h100-80g", target="train.py:model", batch_size="x"', "batch_size"),
    ],
)
def test_a_wrong_marker_is_an_error_and_says_what_was_meant(tests: pytest.Pytester, words: str, told: str) -> None:
    tests.makepyfile(f"import pytest\n@pytest.mark.limit_gpu_memory({words})\ndef test_it(): pass\n")
    result = run(tests)
    result.assert_outcomes(errors=1)
    assert told in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(("batch", "told"), [(13, "the model cannot be built"), (7, "no figure: ")])
def test_no_figure_is_a_failure(tests: pytest.Pytester, batch: int, told: str) -> None:
    tests.makepyfile(MARKED.format(limit="70 GiB", batch=batch))
    result = run(tests)
    result.assert_outcomes(failed=1)
    assert told in result.stdout.str()


def test_growth_fails_until_it_is_accepted(tests: pytest.Pytester) -> None:
    def outcome(batch: int, *words: str) -> pytest.RunResult:
        tests.makepyfile(MARKED.format(limit="70 GiB", batch=batch))
        return run(tests, *words)

    outcome(10).assert_outcomes(passed=1)
    outcome(11, "--memplan-fail-on-increase").assert_outcomes(passed=1)
    grown = outcome(12, "--memplan-fail-on-increase")
    grown.assert_outcomes(failed=1)
    grown.stdout.fnmatch_lines(["predicted 12.00 GiB on h100-80g, 1.00 GiB more than before: *"])
    outcome(12).assert_outcomes(passed=1)
    outcome(12, "--memplan-fail-on-increase").assert_outcomes(failed=1)
    outcome(12, "--memplan-accept-increase").assert_outcomes(passed=1)
    outcome(12, "--memplan-fail-on-increase").assert_outcomes(passed=1)
    # A smaller figure is what later ones are compared with.
    outcome(9, "--memplan-fail-on-increase").assert_outcomes(passed=1)
    outcome(10, "--memplan-fail-on-increase").assert_outcomes(failed=1)


def test_growth_needs_a_place_to_remember(tests: pytest.Pytester) -> None:
    tests.makepyfile(MARKED.format(limit="70 GiB", batch=10))
    result = run(tests, "--memplan-fail-on-increase", "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "pytest's cache" in result.stderr.str()


@pytest.mark.slow
def test_workers_of_xdist_send_their_figures(tests: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    many = """
    import pytest

    @pytest.mark.parametrize("batch", range(20, 26))
    @pytest.mark.limit_gpu_memory("24 GiB", gpu="h100-80g")
    def test_it(memplan_estimate, batch):
        memplan_estimate("train.py:model", batch_size=batch + {more})
    """
    tests.makepyfile(many.replace("{more}", "0"))
    words = ("-p", "xdist", "-n", "2", "--memplan-fail-on-increase")
    first = run_alone(tests, *words)
    first.assert_outcomes(passed=5, failed=1)
    assert sum("train.py:model on h100-80g" in line for line in first.outlines) == 6
    kept = json.loads((tests.path / ".pytest_cache/v/memplan/figures").read_text())
    assert sorted(kept.values()) == [batch << 30 for batch in range(20, 26)]
    run_alone(tests, *words).assert_outcomes(passed=5, failed=1)
    tests.makepyfile(many.replace("{more}", "1"))
    run_alone(tests, *words).assert_outcomes(failed=6)


def test_nothing_is_said_where_nothing_is_estimated(tests: pytest.Pytester) -> None:
    tests.makepyfile("def test_it(): pass")
    assert "memory" not in run(tests).stdout.str()


def test_the_plugin_imports_nothing_of_memplan_until_it_is_used(tests: pytest.Pytester) -> None:
    tests.makeconftest("")
    tests.makepyfile(
        f"""
        import sys

        def test_it():
            own = {{name for name in sys.modules if name.partition(".")[0] == "memplan"}}
            assert own == {{"memplan", "memplan.pytest_plugin", "{PLUGIN}"}}
            assert "torch" not in sys.modules
        """
    )
    run_alone(tests).assert_outcomes(passed=1)


def test_the_marker_is_listed(tests: pytest.Pytester) -> None:
    run(tests, "--markers").stdout.fnmatch_lines(["@pytest.mark.limit_gpu_memory(limit, *, gpu, target=None, *"])


TARGET = """
import torch

def model():
    return torch.nn.Linear(256, 256)

def batch(batch_size):
    return torch.randn(batch_size, 256)

def loss(output, batch):
    return output.mean()
"""
LIGHT = """
def test_light():
    import sys
    assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_a_real_estimate_is_made_once_and_kept(tests: pytest.Pytester) -> None:
    tests.makeconftest("")
    (tests.path / "train.py").write_text(TARGET)
    tests.makepyfile(MARKED.format(limit="2 GiB", batch=8) + LIGHT)
    words = ("-o", "memplan_cache_dir=kept")
    first = run_alone(tests, *words)
    first.assert_outcomes(passed=2)
    assert any("of 2.00 GiB" in line and "train.py:model on h100-80g" in line for line in first.outlines)
    again = run_alone(tests, *words)
    again.assert_outcomes(passed=2)
    assert again.duration < first.duration / 2, "nothing was traced again"
    (tests.path / "train.py").write_text(TARGET.replace("256", "32768"))
    grown = run_alone(tests, *words)
    grown.assert_outcomes(passed=1, failed=1)
    grown.stdout.fnmatch_lines(["predicted * over the limit of 2 GiB: *"])


def test_it_is_declared_to_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"memplan": PLUGIN}
    assert importlib.util.find_spec(PLUGIN) is not None
