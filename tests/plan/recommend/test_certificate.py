"""What a search says is held against its whole space: is nothing better where it says BEST, does nothing fit?

The space is traced once; searches are answered from those traces, on devices of every size, with every budget of work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import Parallel
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.measure.over import over
from memplan.measure.records import Verdict
from memplan.plan.recommend import flow
from memplan.plan.recommend.bases import usual_rank
from memplan.plan.recommend.bounds import Bounds
from memplan.plan.recommend.certificate import key_of
from memplan.plan.recommend.evaluate import Evaluation, evaluate_here, lost
from memplan.plan.recommend.records import Candidate, Recommendation, Search, StepLimits
from memplan.plan.recommend.workers import Workers
from memplan.report.recommend import text
from memplan.units import format_bytes
from tests.plan.recommend.brute import Traced, evaluated, judged, look_up, trace_all

pytestmark = pytest.mark.usefixtures("workspaces_stay")
PROFILE = load_profile("rtx-3060")
SEARCH = Search(processes=2, budget_seconds=1e9, keep=("offload", "optimizer", "lora", "quantize", "precision"))
MODEL = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(128, 1024), torch.nn.Linear(1024, 128)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

def model():
    return torch.nn.Sequential(*[Block() for _ in range(3)])

def batch(batch_size):
    return torch.randn(batch_size, 512, 128)

def loss(output, batch):
    return output.float().mean()
"""
ODD = {
    "in-fours": """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)

    def forward(self, x):
        x = x.view(4, -1, 256, 512)
        return self.down(torch.relu(self.up(x)))
""",
    "quick-if-small": """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)

    def forward(self, x):
        for _ in range(5 if len(x) > 3 else 1):
            x = self.down(torch.relu(self.up(x)))
        return x
""",
    "chunked-if-large": """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)

    def forward(self, x):
        if len(x) > 6:
            return torch.cat([self(part) for part in x.chunk(8)])
        return self.down(torch.relu(self.up(x)))
""",
}
"""Models that no law of micro-batches holds of: six samples fail where four and twelve do not; three cost less than
half of what four cost; twelve cost more than twice six."""
ODD_END = """
def model():
    return Model()

def batch(batch_size):
    return torch.randn(batch_size, 256, 512)

def loss(output, batch):
    return output.float().mean()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    path = tmp_path_factory.mktemp("certificate") / "deep.py"
    path.write_text(MODEL, encoding="utf-8")
    return JobSpec(target=FileTarget(path=path), batch_size=2)


@pytest.fixture(scope="module")
def traced(job: JobSpec) -> Traced:
    return trace_all(job, PROFILE, SEARCH)


@pytest.fixture(scope="module")
def limits(traced: Traced) -> list[int]:
    """Devices on which all, some, one and none of the ways fit."""
    highs = sorted({each.high_bytes for each in evaluated(traced)})
    return [highs[0] - 1, highs[0], *highs[1::3], highs[-1]]


def test_no_bound_is_above_what_it_bounds(traced: Traced) -> None:
    for one in traced.values():
        for other in traced.values():
            if one.evaluated is None or other.evaluated is None:
                continue
            bounds = Bounds(PROFILE)
            bounds.learn(one)
            bounds.learn(other)
            assert bounds.holds
            for each in filter(None, (outcome.evaluated for outcome in traced.values())):
                assert bounds.least_bytes(each.candidate) <= each.device_bytes
                assert bounds.least_seconds(each.candidate) <= each.time.total * (1 + 1e-9)


def test_a_trace_that_contradicts_a_bound_ends_all_bounds(traced: Traced) -> None:
    bounds = Bounds(PROFILE)
    for each in traced.values():
        bounds.learn(each)
    slow = next(each for each in traced.values() if each.evaluated and each.candidate.changes == ("--checkpoint full",))
    assert bounds.least_seconds(slow.candidate) > 0
    assert slow.evaluated is not None
    quick = replace(slow.evaluated, time=replace(slow.evaluated.time, total=1e-6))
    bounds.learn(replace(slow, evaluated=quick))
    assert not bounds.holds
    assert bounds.least_seconds(slow.candidate) == bounds.least_bytes(slow.candidate) == 0


def test_bounds_of_other_ranks_are_below_what_these_need(job: JobSpec) -> None:
    shared = Parallel(data="fsdp2", shards=4)
    known = Candidate(spec=replace(job, parallel=shared), changes=(f"--parallel {shared}",), groups=("parallel",))
    bounds = Bounds(PROFILE)
    bounds.learn(evaluate_here(known, PROFILE, StepLimits()))
    copies = Parallel(data="ddp", replicas=4)
    other = Candidate(spec=replace(job, parallel=copies), changes=(f"--parallel {copies}",), groups=("parallel",))
    real = evaluate_here(other, PROFILE, StepLimits()).evaluated
    assert real is not None
    assert 0.5 * real.time.compute < bounds.least_seconds(other) <= real.time.total
    # A byte for every weight and gradient, and what the device takes for itself.
    elements = 3 * (2 * 128 * 1024 + 128 + 1024)
    assert PROFILE.context_bytes + 2 * elements <= bounds.least_bytes(other) <= real.device_bytes


@pytest.mark.parametrize("most", [1, 2, 3, 4, 6, 8, 12, 16, 24, 1000])
def test_what_is_said_is_true_of_the_whole_space(traced: Traced, limits: list[int], job: JobSpec, most: int) -> None:
    for limit in limits:
        profile, known = replace(PROFILE, usable_bytes=limit), judged(traced, limit)
        answer = look_up(known, job, profile, replace(SEARCH, budget_traces=most))
        _assert_true(answer, known)
        assert answer.traces <= max(most, 1)
        if most == 1000:
            assert answer.proof.ending == ("best" if answer.rows else "nothing_fits")
            assert answer.traces < answer.proof.ways


@pytest.mark.parametrize("odd", ODD)
def test_micro_batches_are_no_law_unto_others(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD[odd] + ODD_END, encoding="utf-8")
    job = JobSpec(target=FileTarget(path=path), batch_size=12)
    search = replace(SEARCH, keep=(*SEARCH.keep, "loss"))
    traced = trace_all(job, PROFILE, search)
    highs = sorted({each.high_bytes for each in evaluated(traced)})
    for limit in (highs[0] - 1, *highs[::3], highs[-1]):
        for most in (3, 6, 1000):
            profile, known = replace(PROFILE, usable_bytes=limit), judged(traced, limit)
            _assert_true(look_up(known, job, profile, replace(search, budget_traces=most)), known)


def _assert_true(answer: Recommendation, known: Traced) -> None:
    """Is what an answer says so, where every way is known?"""
    proof, best = answer.proof, next((each for each in evaluated(known) if each.fits), None)
    assert proof.ways == len(known)
    match proof.ending:
        case "best":
            assert best is not None
            assert answer.best is not None
            assert answer.best.time.total <= best.time.total * (1 + 1e-9)
        case "best_of_proved":
            assert best is not None
            assert answer.best is not None
            assert proof.gap is None or answer.best.time.total <= best.time.total * (1 + proof.gap) * (1 + 1e-9)
        case "nothing_fits":
            assert best is None
            sizes = [each.device_bytes for each in evaluated(known)]
            assert proof.least_bytes is not None
            assert proof.least_bytes <= min(sizes)
            assert not proof.is_least_reached or proof.least_bytes == min(sizes)
        case "not_found":
            assert answer.best is None
            assert proof.proved < proof.ways
    if best is not None and proof.least_changes is not None:
        assert proof.least_changes <= min(len(each.candidate.changes) for each in evaluated(known) if each.fits)


def test_no_figure_is_refuted_by_an_estimate_of_the_same_setup(traced: Traced, job: JobSpec, limits: list[int]) -> None:
    """Peak, interval, verdict and "over by" of what fits and of what does not."""
    profile = replace(PROFILE, usable_bytes=limits[len(limits) // 2])
    looked_up = {key: evaluate_here(each.candidate, profile, StepLimits()) for key, each in [*traced.items()][::5]}
    told = [each.evaluated for each in looked_up.values() if each.evaluated is not None]
    assert {each.fits for each in told} == {True, False}
    for each in told:
        (alone,) = estimate_here(each.candidate.spec, [profile], advice=False)
        peak = alone.peak
        assert (each.device_bytes, each.high_bytes) == (peak.device_bytes, peak.high_bytes)
        assert (each.allocated_bytes, each.reserved_bytes) == (peak.allocated_bytes, peak.reserved_bytes)
        assert each.fits == (alone.verdict is Verdict.FITS)
        beyond = over(peak.device_bytes, peak.high_bytes, profile.usable_bytes)
        assert each.reason == (f"{beyond} the {format_bytes(profile.usable_bytes)} for the step" if beyond else "")


def test_an_interrupted_search_says_what_it_has_proved(traced: Traced, limits: list[int], job: JobSpec) -> None:
    profile, known = replace(PROFILE, usable_bytes=limits[2]), judged(traced, limits[2])
    best = next(each for each in evaluated(known) if each.fits)
    for most in (1, 3, 6, 10):
        seen: list[Candidate] = []

        def stop(way: Candidate, seen: list[Candidate] = seen, most: int = most) -> None:
            if len(seen) == most:
                raise KeyboardInterrupt
            seen.append(way)

        answer = look_up(known, job, profile, SEARCH, told=stop)
        assert answer.interrupted
        assert answer.traces <= most
        assert answer.proof.ending != "nothing_fits"
        if answer.best is not None and answer.proof.gap is not None:
            assert answer.best.time.total <= best.time.total * (1 + answer.proof.gap) * (1 + 1e-9)


def test_an_interrupt_before_the_job_is_traced_is_no_answer(traced: Traced, job: JobSpec) -> None:
    def stop(_: Candidate) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        look_up(traced, job, PROFILE, SEARCH, told=stop)


def test_what_people_try_first_is_traced_first(traced: Traced, limits: list[int], job: JobSpec) -> None:
    """Until something fits: no way before one that is simpler and should fit; nothing extreme."""
    seen: list[Candidate] = []
    look_up(judged(traced, limits[0]), job, replace(PROFILE, usable_bytes=limits[0]), SEARCH, told=seen.append)
    alone = [each.changes for each in seen if len(each.changes) < 2]
    assert alone[:3] == [(), ("--optimizer-impl fused",), ("--checkpoint full",)]
    first_split = next(index for index, each in enumerate(seen) if "split" in each.groups)
    assert ("--checkpoint full",) in [each.changes for each in seen[:first_split]]


def test_simple_ways_come_before_those_that_are_made_of_them(traced: Traced) -> None:
    ways = [each.candidate for each in traced.values()]
    for one in ways:
        for other in ways:
            if set(one.changes) < set(other.changes):
                assert usual_rank(one) < usual_rank(other)


@pytest.mark.parametrize(("gpu", "half"), [("t4", "--precision fp16-mixed"), ("rtx-3060", "--precision bf16-mixed")])
def test_of_16_bits_a_device_is_offered_what_it_multiplies(traced: Traced, job: JobSpec, gpu: str, half: str) -> None:
    search = replace(SEARCH, keep=("offload", "loss", "optimizer", "lora", "quantize"))
    answer = look_up(traced, job, load_profile(gpu), search)
    offered = {each.candidate.words for each in answer.what_ifs if "precision" in each.candidate.groups}
    assert half in offered
    assert {words.removeprefix("--precision ")[:2] for words in offered} == {half.removeprefix("--precision ")[:2]}


class Losing(Workers):
    """Loses ways that checkpoint, and evaluates the others here; where the job as given is too slow nothing comes."""

    slow = False

    def run(self, candidates: Sequence[Candidate], *_: object, **__: object) -> Iterator[Evaluation]:
        for each in () if self.slow else candidates:
            is_lost = each.spec.checkpoint == "full"
            yield lost(each, KILLED, "") if is_lost else evaluate_here(each, self._profile, self._limits)


def test_a_search_that_finds_nothing_says_what_it_would_have_traced_next(job: JobSpec, traced: Traced) -> None:
    best = min(evaluated(traced), key=lambda each: each.high_bytes)
    known = judged(traced, best.high_bytes)
    profile = replace(PROFILE, usable_bytes=best.high_bytes)
    told: list[str] = []
    for count in range(1, len(known)):
        search = replace(SEARCH, budget_traces=count)
        answer = look_up(known, job, profile, search, told=lambda each: told.append(key_of(each)))
        if answer.best is not None:
            assert answer.untraced is None
            break
        assert answer.proof.ending == "not_found"
        assert answer.untraced is not None
        assert key_of(answer.untraced) in known
        assert key_of(answer.untraced) not in told
        told.clear()
    assert answer.best is not None


KILLED = "its process was killed"


def test_of_ways_that_were_lost_nothing_is_proved(
    job: JobSpec, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one way that fits checkpoints: that it was lost does not mean that nothing fits."""
    monkeypatch.setattr(flow, "Workers", Losing)
    best = min(evaluated(traced), key=lambda each: each.high_bytes)
    answer = flow.search_here(job, replace(PROFILE, usable_bytes=best.high_bytes), SEARCH, timeout=60)
    assert best.candidate.spec.checkpoint == "full"
    assert answer.proof.ending == "not_found"
    assert answer.proof.proved < answer.proof.ways
    assert KILLED in {each.reason for each in answer.rejected}


def test_a_job_that_outlasts_the_time_is_not_found_in_none_of_its_ways(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "Workers", Losing)
    monkeypatch.setattr(Losing, "slow", True)
    answer = flow.search_here(job, PROFILE, SEARCH, timeout=60)
    monkeypatch.undo()
    assert (answer.proof.ending, answer.proof.proved, answer.traces, answer.best) == ("not_found", 0, 0, None)
    assert answer.proof.ways == len(trace_all(job, PROFILE, SEARCH))
    (given,) = answer.rejected
    assert (given.candidate.words, given.traced) == ("as given", False)
    assert "takes longer than --time-limit" in "\n".join(line.plain for line in text.render(answer))
