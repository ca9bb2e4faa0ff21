"""The partitioner where torch calls it: ``torch.compile`` with Inductor, and AOTAutograd's eager backend."""

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd

from memplan.errors import EstimateError, UsageError
from memplan.plan.checkpoint.ops.partitioner import JointPlan, budget_partitioner
from memplan.plan.checkpoint.schedule.records import FeasibleSchedule, OptimalSchedule
from tests.plan.checkpoint.ops.models import Llama

NEEDS_HOOK = pytest.mark.skipif(
    not hasattr(torch._inductor.config, "custom_partitioner_fn"),
    reason="Inductor takes none before torch 2.8",
)


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _model() -> tuple[nn.Module, torch.Tensor]:
    return Llama(layers=2, dropout=0.1, tied=True), torch.randint(0, 64, (4, 32))


def _boxed(module: torch.fx.GraphModule, _: object):
    def run(args: list[torch.Tensor]) -> object:
        return torch.fx.Interpreter(module).boxed_run(args)

    run._boxed_call = True
    return run


def _eager_backend(partitioner: object):
    return aot_autograd(fw_compiler=_boxed, bw_compiler=_boxed, partition_fn=partitioner)


def _gradients(model: nn.Module, call: object, batch: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(1)
    call(batch).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def _plans(model: nn.Module, batch: torch.Tensor, budget: int) -> tuple[object, list[JointPlan]]:
    plans: list[JointPlan] = []
    partitioner = budget_partitioner(budget, time_limit=2, tell=plans.append)
    return torch.compile(model, backend=_eager_backend(partitioner), dynamic=False), plans


@pytest.mark.slow
def test_aot_eager_follows_a_budget_and_computes_the_same_gradients():
    torch.manual_seed(0)
    model, batch = _model()
    eager = _gradients(model, model, batch)
    compiled, plans = _plans(model, batch, 10**9)
    expected = _gradients(model, compiled, batch)
    before = plans[0].unplanned.peak_bytes
    fixed = plans[0].problem.graph.fixed_bytes
    torch._dynamo.reset()
    budget = fixed + int(0.8 * (before - fixed))
    compiled, plans = _plans(model, batch, budget)
    gradients = _gradients(model, compiled, batch)
    assert all(map(torch.equal, gradients, expected))
    torch.testing.assert_close(gradients, eager)
    (plan,) = plans
    assert isinstance(plan.result, FeasibleSchedule | OptimalSchedule)
    assert plan.result.figures.peak_bytes <= budget < before
    assert len(plan.result.schedule.nodes) > len(plan.problem.graph.names)


def test_a_budget_that_nothing_meets_is_refused_with_what_can_be_met():
    model, batch = _model()
    compiled, _ = _plans(model, batch, 1000)
    with pytest.raises(Exception, match="less than what one op needs") as caught:
        compiled(batch)
    cause = caught.value
    while not isinstance(cause, EstimateError):
        cause = cause.__cause__ or cause.inner_exception
    assert "or more" in str(cause.hint)


def test_sizes_that_are_not_known_are_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    compiled = torch.compile(model, backend=_eager_backend(budget_partitioner(10**9)), dynamic=True)
    with pytest.raises(Exception, match="not known before it runs") as caught:
        compiled(torch.randn(3, 4))
    assert isinstance(caught.value.__cause__ or caught.value.inner_exception, UsageError)


@pytest.mark.slow
@NEEDS_HOOK
@pytest.mark.filterwarnings("ignore")
def test_inductor_uses_one_mask_in_forward_and_backward():
    """The gradient of what is added before dropout is zero exactly where the mask of backward is."""
    torch.manual_seed(0)
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    x = torch.randn(1024, 64)
    plans: list[JointPlan] = []

    def loss(shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = nn.functional.dropout(nn.functional.gelu(first(x)) + 3.0 + shift, 0.5)
        z = second(torch.tanh(second(torch.tanh(second(torch.sin(y))))))
        return y, (y.sin() * z).sum()

    def step(budget: int) -> None:
        torch._dynamo.reset()
        partitioner = budget_partitioner(budget, time_limit=3, tell=plans.append)
        shift = torch.zeros(1024, 64, requires_grad=True)
        with torch._inductor.config.patch(custom_partitioner_fn=partitioner, force_disable_caches=True):
            y, total = torch.compile(loss, dynamic=False)(shift)
            total.backward()
        assert 0.4 < (y == 0).float().mean() < 0.6
        assert torch.equal(y == 0, shift.grad == 0)

    step(10**9)
    graph = plans[0].problem.graph
    step(graph.fixed_bytes + int(0.9 * (plans[0].unplanned.peak_bytes - graph.fixed_bytes)))
    assert plans[1].result.figures.cost > plans[0].result.figures.cost
