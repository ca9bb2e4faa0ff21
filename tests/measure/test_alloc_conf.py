"""Options of the allocator that a target sets itself, or that a program is started with."""

from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.measure.records import Estimate
from memplan.replay.policy import AllocatorPolicy
from memplan.simulate.lengths import Uniform
from memplan.simulate.tail import TailPlan
from memplan.simulate.tail_of_job import tail_of
from memplan.tracing.cuda.release import VARIABLE

STEP = """
import os
import torch
from torch import nn


def model():
    return nn.Sequential(nn.Linear(3000, 3000), nn.GELU(), nn.Linear(3000, 100))


def batch(batch_size):
    return torch.randn(batch_size, 3000)


def loss(output, batch):
    return output.square().mean()
"""
LOOP = """
net = model().cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(100):
    loss(net(batch(16).cuda()), None).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SETS = 'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "{}"\n'
ROUNDED = "roundup_power2_divisions:2"
NAME = "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture(autouse=True)
def _own_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    # So that what a target sets is gone after its test.
    monkeypatch.setenv(NAME, "")


def estimated(text: str, *, program: bool, conf: str = "", gpu: str = "h100-80g") -> Estimate:
    path = Path("train.py")
    path.write_text(text)
    target = ScriptTarget(path=path) if program else FileTarget(path=path)
    [result] = estimate_here(JobSpec(target=target, batch_size=16), [load_profile(gpu)], alloc_conf=conf, advice=False)
    return result


def told(estimate: Estimate) -> list[str]:
    return [sentence for sentence in estimate.assumptions if "allocator" in sentence]


@pytest.mark.parametrize("program", [True, False], ids=["program", "file"])
def test_what_a_target_sets_is_in_force(program: bool) -> None:
    text = STEP + (LOOP if program else "")
    given = estimated(text, program=program, conf=ROUNDED)
    found = estimated(SETS.join(["import os\n", text]).format(ROUNDED), program=program)
    assert found.peak.reserved_bytes == given.peak.reserved_bytes
    assert told(found) == [f"the target's own options of the allocator, {ROUNDED}, are taken"]


def test_a_program_is_started_as_in_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = estimated(STEP + LOOP, program=True)
    given = estimated(STEP + LOOP, program=True, conf=ROUNDED)
    monkeypatch.setenv(NAME, ROUNDED)
    found = estimated(STEP + LOOP, program=True)
    assert found.peak.reserved_bytes == given.peak.reserved_bytes != plain.peak.reserved_bytes
    assert not told(plain)
    assert not told(given)


def test_what_is_asked_for_comes_before_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    given = estimated(STEP + LOOP, program=True, conf=ROUNDED)
    monkeypatch.setenv(NAME, "expandable_segments:True")
    assert estimated(STEP + LOOP, program=True, conf=ROUNDED).peak == given.peak
    # So do PyTorch's own options.
    monkeypatch.setenv(NAME, ROUNDED)
    asked = estimated(STEP + LOOP, program=True, conf="expandable_segments:False")
    monkeypatch.setenv(NAME, "")
    assert asked.peak == estimated(STEP + LOOP, program=True).peak


def test_options_that_nobody_understands_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = estimated(STEP + LOOP, program=True)
    monkeypatch.setenv(NAME, "no_such_option:1")
    other = estimated(STEP + LOOP, program=True)
    assert other.peak == plain.peak
    [sentence] = told(other)
    assert sentence.endswith("no_such_option:1, are not understood: PyTorch's own are taken")


def test_rocm_ignores_expandable_segments_before_it_had_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def reserved(release: str, conf: str) -> tuple[int, list[str]]:
        monkeypatch.setenv(VARIABLE, release)
        answer = estimated(STEP + LOOP, program=True, conf=conf, gpu="mi300x")
        return answer.peak.reserved_bytes, [said for said in answer.assumptions if "expandable" in said]

    plain, nothing = reserved("2.9.0", "")
    ignored, sentences = reserved("2.9.0", "expandable_segments:True")
    assert (ignored, nothing) == (plain, [])
    assert sentences == ["ROCm builds of torch before 2.12 have no expandable segments: the option is ignored"]
    heeded, said = reserved("2.13.0", "expandable_segments:True")
    assert heeded != plain
    assert not said


def test_drawn_runs_have_the_options_of_the_target() -> None:
    path = Path("sequences.py")
    path.write_text(
        SETS.format("expandable_segments:True").join(["import os\n", STEP])
        .replace("def batch(batch_size):", "def batch(batch_size, seq_len):")
        .replace("torch.randn(batch_size, 3000)", "torch.randn(batch_size, seq_len, 3000)")
    )  # fmt: skip
    plan = TailPlan(distribution=Uniform(low=4, high=8), steps=10, seed=0)
    spec = JobSpec(target=FileTarget(path=path), batch_size=2, seq_len=8)
    tail, _ = tail_of(spec, load_profile("h100-80g"), plan)
    assert tail.policy == AllocatorPolicy(expandable_segments=True)
    asked, _ = tail_of(spec, load_profile("h100-80g"), plan, "expandable_segments:False")
    assert asked.policy == AllocatorPolicy()
