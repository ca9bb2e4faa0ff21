"""Op-level plan files: what the command wrote is what a real compiled step follows, and no other step."""

import json
from pathlib import Path

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd

import memplan
import memplan.runtime.partition
from memplan.cli.app import main
from memplan.errors import UsageError
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.partition.order_file import read_order
from tests.runtime.partition.measure import LiveBytes

BATCH = 8
TARGET = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(nn.functional.dropout(nn.functional.gelu(self.up(y)), 0.1, self.training))


def model(blocks=4):
    return nn.Sequential(*(Block() for _ in range(blocks)))


def batch(batch_size):
    return torch.randn(batch_size, 64, 16)


def loss(output, batch):
    return (output - batch).square().mean()
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("op") / "step.py"
    file.write_text(TARGET)
    return file


@pytest.fixture(scope="module")
def plan(target: Path) -> Path:
    return _planned(target)


def _planned(target: Path) -> Path:
    file = target.with_suffix(".json")
    arguments = ["--level", "op", "--budget-ratio", "0.75", "--batch-size", str(BATCH), "--time-limit", "2", "-q"]
    assert main(["checkpoint-plan", str(target), *arguments, "-o", str(file)]) == 0
    return file


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class _Step:
    """The target's step for real, compiled with a partitioner of its own."""

    def __init__(self, target: Path, partitioner: object, **options: int) -> None:
        names: dict[str, object] = {}
        exec(compile(target.read_text(), target, "exec"), names)
        torch.manual_seed(0)
        self.model, self.batch = names["model"](**options), names["batch"](BATCH)
        self.live = LiveBytes()
        backend = aot_autograd(fw_compiler=self._boxed, bw_compiler=self._boxed, partition_fn=partitioner)

        def step(batch: torch.Tensor) -> torch.Tensor:
            return names["loss"](self.model(batch), batch)

        self.eager, self.compiled = step, torch.compile(step, backend=backend, dynamic=False)

    def _boxed(self, module: torch.fx.GraphModule, _: object):
        def run(args: list[torch.Tensor]) -> object:
            with self.live:
                self.live.see(args)
                return torch.fx.Interpreter(module).boxed_run(args)

        run._boxed_call = True
        return run

    def gradients(self, call: object) -> list[torch.Tensor]:
        self.model.zero_grad()
        torch.manual_seed(1)
        call(self.batch).backward()
        return [parameter.grad.clone() for parameter in self.model.parameters()]


@pytest.mark.slow
def test_a_real_compiled_step_follows_the_file_and_takes_what_it_promises(target: Path, plan: Path):
    promise = read_order(plan).promise
    assert promise.peak_after_bytes <= promise.budget_bytes < promise.peak_before_bytes
    step = _Step(target, memplan.runtime.partition.load(plan))
    planned = step.gradients(step.compiled)
    assert step.live.peak == promise.peak_after_bytes
    assert all(map(torch.equal, planned, step.gradients(step.eager)))


@pytest.mark.slow
def test_a_normalisation_of_batches_may_run_again_though_its_statistics_were_updated(tmp_path: Path):
    target = tmp_path / "step.py"
    target.write_text(TARGET.replace("nn.LayerNorm(16)", "nn.BatchNorm1d(64)"))
    plan = _planned(target)
    order = read_order(plan)
    runs_again = any(name.startswith("_native_batch_norm") for name in {*order.forward} & {*order.backward})
    # AOTAutograd of 2.6 cannot save running statistics that the step goes on to write to.
    assert runs_again or torch.__version__ < "2.13"
    assert not (runs_again and torch.__version__.startswith("2.6."))
    step, eager = _Step(target, memplan.runtime.partition.load(plan)), _Step(target, None)
    planned = step.gradients(step.compiled)
    assert all(map(torch.equal, planned, eager.gradients(eager.eager)))
    assert all(map(torch.equal, step.model.buffers(), eager.model.buffers()))
    # New values of counters end with forward, when AOTAutograd has written them to the buffers.
    counters = sum(buffer.nbytes for buffer in step.model.buffers() if buffer.dtype is torch.int64)
    assert step.live.peak == order.promise.peak_after_bytes - counters


def _refused(target: Path, plan: Path, **options: int) -> PlanMismatch:
    step = _Step(target, memplan.runtime.partition.load(plan), **options)
    with pytest.raises(Exception, match="plan was made for") as caught:
        step.compiled(step.batch)
    cause = caught.value.__cause__ or caught.value.inner_exception
    assert isinstance(cause, PlanMismatch)
    assert "checkpoint-plan" in str(cause.hint)
    return cause


def test_another_model_is_refused_with_what_differs(target: Path, plan: Path):
    assert "op" in _refused(target, plan, blocks=3).what


def test_another_batch_is_refused_with_the_shape(target: Path, plan: Path, tmp_path: Path):
    other = tmp_path / "other.py"
    other.write_text(TARGET.replace("torch.randn(batch_size,", "torch.randn(batch_size // 2,"))
    said = _refused(other, plan).what
    assert "[8, 64, 16]" in said
    assert "[4, 64, 16]" in said


@pytest.mark.skipif(
    not hasattr(torch._inductor.config, "custom_partitioner_fn"), reason="Inductor takes none before torch 2.8"
)
@pytest.mark.filterwarnings("ignore")
def test_inductors_graph_is_refused_with_what_to_do_instead(target: Path, plan: Path):
    step, partitioner = _Step(target, None), memplan.runtime.partition.load(plan)
    with torch._inductor.config.patch(custom_partitioner_fn=partitioner, force_disable_caches=True):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="Inductor's graph is not the plan's") as caught:
            torch.compile(step.eager, dynamic=False)(step.batch)
    assert "budget_partitioner" in str(caught.value)
    assert "aot_autograd" in str(caught.value)


def test_the_same_ops_on_other_arguments_are_refused(target: Path, plan: Path, tmp_path: Path):
    other = tmp_path / "other.py"
    other.write_text(TARGET.replace("return x + self.down", "return y + self.down"))
    _refused(other, plan)
    other.write_text(TARGET.replace("0.1, self", "0.2, self"))
    assert "what they are called on is not" in _refused(other, plan).what


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": "2.0"}, "update memplan"),
        ({"level": "block"}, "no op-level plan"),
        ({"promise": None}, "promise: expected an object"),
        ({"forward": ["nowhere"]}, "nowhere"),
    ],
)
def test_a_file_that_is_no_such_plan_is_refused(plan: Path, tmp_path: Path, change: dict[str, object], said: str):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(json.loads(plan.read_text()) | change))
    with pytest.raises(UsageError) as caught:
        memplan.runtime.partition.load(file)
    assert said in str(caught.value)


def test_it_is_no_plan_of_blocks(plan: Path):
    with pytest.raises(UsageError, match=r"for memplan\.runtime\.partition\.load"):
        memplan.apply(torch.nn.Linear(2, 2), str(plan))
