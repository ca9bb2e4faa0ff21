"""Time limits of the processes that trace: what runs too long is left, what is done is kept."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec, PresetTarget
from memplan.plan.recommend.evaluate import Evaluation, not_traced
from memplan.plan.recommend.records import Candidate, StepLimits
from memplan.plan.recommend.workers import Workers

PROFILE = load_profile("rtx-4090")
LONG = 60.0


def _lasting(candidate: Candidate, profile: GpuProfile, limits: StepLimits) -> Evaluation:
    """Sleeps as long as its one change says."""
    time.sleep(float(candidate.words))
    return not_traced(candidate, "slept")


def _dying(candidate: Candidate, profile: GpuProfile, limits: StepLimits) -> Evaluation:
    """Is killed, as the system does it where memory runs out, if its change says less than nothing."""
    if float(candidate.words) < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return _lasting(candidate, profile, limits)


def _listening(candidate: Candidate, profile: GpuProfile, limits: StepLimits) -> Evaluation:
    """Says which signals it hears nothing of."""
    return not_traced(candidate, str(signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def _candidates(*seconds: float) -> list[Candidate]:
    job = JobSpec(target=PresetTarget(name="gpt2"))
    return [
        Candidate(spec=replace(job, batch_size=index + 1), changes=(str(each),)) for index, each in enumerate(seconds)
    ]


def _workers(timeout: float = LONG) -> Workers:
    workers = Workers(PROFILE, StepLimits(), processes=2, timeout=timeout)
    # Starting processes is no part of what is measured.
    assert len(list(workers.run(_candidates(0.0, 0.0), _lasting))) == 2
    return workers


@pytest.mark.slow
def test_at_the_deadline_what_is_done_is_kept_and_the_rest_is_left() -> None:
    workers, started = _workers(), time.perf_counter()
    found = list(workers.run(_candidates(LONG, 0.0, 0.0), _lasting, until=started + 4))
    assert [each.candidate.words for each in found] == ["0.0", "0.0"]
    assert time.perf_counter() - started < LONG / 2


def test_none_begins_late_and_those_that_run_may_finish() -> None:
    workers, started = _workers(), time.perf_counter()
    found = list(workers.run(_candidates(1.5, 1.5, 0.0, 0.0), _lasting, begin_until=started + 1, until=started + LONG))
    assert [each.candidate.words for each in found] == ["1.5", "1.5"]
    assert list(workers.run(_candidates(0.0), _lasting, begin_until=started)) == []


def test_a_process_that_would_wait_does_what_is_wanted_later_and_nothing_twice() -> None:
    workers = _workers()
    long, short, *later = _candidates(2.0, 0.0, 0.3, 1.0, 5.0)
    found = list(workers.run([long, short], _lasting, meanwhile=later))
    # The last of them goes on while the next are begun, one of which it is.
    assert [each.candidate.words for each in found] == ["0.0", "0.3", "1.0", "2.0"]
    started = time.perf_counter()
    assert [each.candidate.words for each in workers.run([later[-1]], _lasting)] == ["5.0"]
    assert time.perf_counter() - started < 5.0
    assert list(workers.run([], _lasting, meanwhile=later)) == []


@pytest.mark.slow
def test_a_trace_that_hangs_is_lost_and_the_others_go_on() -> None:
    found = list(_workers(timeout=4.0).run(_candidates(LONG, LONG, 0.0), _lasting))
    assert [(each.candidate.words, each.is_lost) for each in found] == [("60.0", True), ("60.0", True), ("0.0", False)]
    assert "did not come to an end within 4 seconds" in found[0].reason


@pytest.mark.slow
def test_a_process_that_dies_costs_its_candidate_alone() -> None:
    found = {each.candidate.words: each for each in _workers().run(_candidates(0.0, -1.0, 0.5, 1.0), _dying)}
    assert {words: each.is_lost for words, each in found.items()} == {
        "0.0": False,
        "-1.0": True,
        "0.5": False,
        "1.0": False,
    }
    assert found["-1.0"].reason == "its process was killed"
    assert isinstance(found["-1.0"].error, EstimateError)


def test_what_runs_when_the_time_is_over_is_abandoned_the_first_too() -> None:
    workers, started = _workers(), time.perf_counter()
    assert list(workers.run(_candidates(LONG), _lasting, until=started + 1)) == []
    assert time.perf_counter() - started < LONG / 2


@pytest.mark.slow
def test_an_interrupt_is_for_the_search_and_not_for_its_workers() -> None:
    """A terminal sends it to all of them; in the middle of an import it would leave a traceback."""
    get_reusable_executor().shutdown(wait=True, kill_workers=True)
    workers = Workers(PROFILE, StepLimits(), processes=2, timeout=LONG)
    heard = [each.reason for each in workers.run(_candidates(0.0, 0.0), _listening)]
    assert all("SIGINT" in each for each in heard)
    assert len(heard) == 2
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
def test_workers_run_no_exit_hooks_of_user_code(tmp_path: Path) -> None:
    # In a process of its own, since it is at its end that workers end.
    (tmp_path / "target.py").write_text(
        "import atexit, pathlib, torch\n"
        "atexit.register(pathlib.Path(__file__).with_name('hook').touch)\n"
        "def model():\n    return torch.nn.Linear(8, 8)\n"
        "def batch(batch_size):\n    return torch.randn(batch_size, 8)\n"
        "def loss(output, batch):\n    return output.sum()\n"
    )
    command = [sys.executable, "-m", "memplan", "recommend", "target.py", "--gpu", "rtx-4090", "--jobs", "2"]
    subprocess.run([*command, "--time-limit", "8traces"], cwd=tmp_path, check=True, capture_output=True, timeout=240)
    assert not (tmp_path / "hook").exists()
