"""Programs whose model gets a plan from outside: beside the same plan in the program, and beside real runs."""

import json
from pathlib import Path

import pytest
import torch

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.measure.local import estimate_here
from memplan.measure.measurer import trace_for
from memplan.measure.records import Estimate
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.plan.checkpoint.blocks.planning import plan_here
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest
from memplan.runtime.checkpoint.plan_file import write_plan
from memplan.tracing.records import ModelPlace, Trace
from memplan.validate.run import run_here

TRAIN = """
import argparse
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        return x + self.narrow(torch.relu(self.wide(x)))

class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block(width) for _ in range(depth)), nn.Linear(width, 8)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def train(options, net, optimizer):
    for step in range(10_000):
        x = torch.randn(options.batch_size, 64, device=options.device)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    model = Net(
        64, depth=6
    ).to(options.device)
    # here
    optimizer = torch.optim.AdamW(model.parameters())
    train(options, model, optimizer)

if __name__ == "__main__":
    main()
"""
MADE = TRAIN[: TRAIN.index("# here")].count("\n")
"""The last line of the statement that makes the model."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(text: str = TRAIN, *arguments: str, checkpoint: str = "none") -> JobSpec:
    Path("train.py").write_text(text)
    return JobSpec(target=ScriptTarget(path=Path("train.py"), arguments=arguments), checkpoint=checkpoint)


def estimated(spec: JobSpec, gpu: str = "h100-80g") -> Estimate:
    [result] = estimate_here(spec, [load_profile(gpu)], advice=False)
    return result


def planned(spec: JobSpec, share: float, gpu: str = "h100-80g", **options: object) -> CheckpointAnswer:
    """The plan for a share of the unplanned step's activations."""
    before = estimated(spec, gpu)
    budget = int(before.peak.device_bytes - (1 - share) * before.breakdown["activation"])
    return plan_here(spec, load_profile(gpu), BlockPlanRequest(budget_bytes=budget, pareto=False, **options))


def shown(spec: JobSpec) -> tuple[ModelPlace, Trace]:
    """Where the program has its first model, and its trace."""
    places: list[ModelPlace] = []

    def see(_: torch.nn.Module, place: ModelPlace | None) -> None:
        assert place is not None
        places.append(place)

    trace = trace_for(spec, load_profile("h100-80g"), seen=see)
    return places[0], trace


def test_checkpointing_from_outside_is_that_of_the_program_itself(folder: Path) -> None:
    outside = estimated(job(checkpoint="full"))
    Path("plan.json").write_text(json.dumps({"modules": ["blocks.*"]}))
    inside = estimated(job(TRAIN.replace("# here", "import memplan; memplan.apply(model, 'plan.json')")))
    assert outside.peak.requested_bytes == inside.peak.requested_bytes < estimated(job()).peak.requested_bytes
    assert outside.repeats
    assert outside.options["checkpoint"] == "full"
    assert "checkpoint" not in inside.options
    assert any("put on model from outside" in sentence for sentence in outside.assumptions)


def test_a_plan_of_a_program_holds_when_the_program_applies_it(folder: Path) -> None:
    answer = planned(job(), 0.5)
    assert answer.fits
    assert "batch" not in answer.step  # The program decides, and its report says so.
    write_plan(answer.plan, Path("plan.json"))
    assert answer.model_place is not None
    assert (answer.model_place.expression, answer.model_place.line) == ("model", f"train.py:{MADE}")
    assert {row.module for row in answer.blocks} == {f"blocks.{index}" for index in range(6)}
    lines = TRAIN.splitlines()
    lines.insert(MADE, "    import memplan; memplan.apply(model, 'plan.json')")
    inside = estimated(job("\n".join(lines)))
    assert (
        inside.peak.device_bytes == answer.peak_after_bytes == estimated(job(checkpoint="plan.json")).peak.device_bytes
    )


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", ["full", "plan.json"])
def test_a_real_run_takes_what_was_promised(checkpoint: str, folder: Path) -> None:
    on_cpu = ("--device", "cpu")
    answer = planned(job(TRAIN, *on_cpu), 0.4, gpu="cpu", method="rotor")
    write_plan(answer.plan, Path("plan.json"))
    spec = job(TRAIN, *on_cpu, checkpoint=checkpoint)
    predicted = estimated(spec, "cpu").peak.requested_bytes
    measured = run_here(spec, device="cpu", steps=3, traced_steps=3, seconds=60).measured.peaks.requested
    assert measured == pytest.approx(predicted, abs=64)


@pytest.mark.parametrize(
    ("change", "expression"),
    [
        (("model = Net(", "nets = dict(\n        one=1); model = Net("), "model"),
        (("    # here", "    model = torch.compile(model)\n"), "model"),
        (
            ("    model = Net(", "    class Trainer: pass\n    trainer = Trainer()\n    trainer.model = Net("),
            "trainer.model",
        ),
    ],
    ids=["in a statement of several", "compiled", "of an object"],
)
def test_where_a_program_has_its_model(change: tuple[str, str], expression: str, folder: Path) -> None:
    text = TRAIN.replace(*change)
    if expression != "model":
        text = text.replace("model.parameters", f"{expression}.parameters").replace(
            "options, model,", f"options, {expression},"
        )
    assert shown(job(text))[0].expression == expression


def test_what_a_loop_holds_is_not_held_longer(folder: Path) -> None:
    """Looking for the model's name looks at variables, which must not keep what they hold."""
    text = TRAIN.replace("loss = net(x)", "big = x.repeat(1, 64); del x; loss = net(big[:, :64])").replace(
        "optimizer.step()", "del big; optimizer.step()"
    )
    _, trace = shown(job(text))
    alone = trace_for(job(text), load_profile("h100-80g"))
    assert trace.events == alone.events


def test_the_second_of_two_models_may_be_the_one_with_blocks(folder: Path) -> None:
    text = TRAIN.replace("loss = net(x)", "loss = net(scale(x))").replace(
        "    for step", "    scale = nn.Linear(64, 64).to(options.device)\n    for step"
    )
    assert any("put on model from outside" in said for said in estimated(job(text, checkpoint="full")).assumptions)


def test_a_program_without_blocks_is_told_so(folder: Path) -> None:
    text = TRAIN.replace("self.blocks,", "self.block, self.blocks,").replace(
        "nn.ModuleList(Block(width) for _ in range(depth))", "Block(width), ()"
    )
    with pytest.raises(UsageError, match="no repeated blocks"):
        estimated(job(text, checkpoint="full"))


TWO_NETS = """
import torch
from torch import nn

def net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, outputs))

maker, judge = net(16, 64).to("cuda"), net(64, 1).to("cuda")
of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
for step in range(10_000):
    fake = maker(torch.randn(512, 16, device="cuda"))  # made
    judge(torch.randn(512, 64, device="cuda")).mean().backward()
    judge(fake.detach()).mean().neg().backward()
    of_judge.step()
    of_judge.zero_grad()
    judge(fake).mean().backward()
    of_maker.step()
    of_maker.zero_grad()
"""
"""Both nets have modules of the same names."""


def test_of_two_nets_the_first_that_is_called_is_planned(folder: Path) -> None:
    lines = TWO_NETS.splitlines(keepends=True)
    made, judged = (next(i for i, line in enumerate(lines) if word in line) for word in ("# made", "judge(torch.randn"))
    lines[made], lines[judged] = lines[judged], lines[made]
    answer = plan_here(job("".join(lines)), load_profile("t4"), BlockPlanRequest(budget_bytes=1 << 40, pareto=False))
    assert answer.model_place is not None
    assert answer.model_place.expression == "judge"
    assert [row.module for row in answer.blocks] == ["0", "1", "2", "3", "4"]


def test_a_net_whose_backward_lies_in_the_next_step_is_told_how_to_be_planned(folder: Path) -> None:
    with pytest.raises(UsageError, match="forward and backward") as caught:
        plan_here(job(TWO_NETS), load_profile("t4"), BlockPlanRequest(budget_bytes=1 << 40, pareto=False))
    assert "train_step(model, optimizer, batch)" in (caught.value.hint or "")


def test_blocks_that_do_not_run_come_with_modules_that_do(folder: Path) -> None:
    text = TRAIN.replace("self.blocks, self.head =", "self.never, self.blocks, self.head = nn.Linear(1, 1),")
    request = BlockPlanRequest(budget_bytes=1 << 40, pareto=False, blocks=("never",))
    with pytest.raises(UsageError, match="forward and backward") as caught:
        plan_here(job(text), load_profile("t4"), request)
    hint = caught.value.hint or ""
    assert "blocks.0.wide, blocks.0.narrow, blocks.1.wide" in hint
    assert "never" not in hint
