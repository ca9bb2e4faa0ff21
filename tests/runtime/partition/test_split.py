"""A cut joint graph computes what the whole one does, takes what the schedule says, and recomputes where it says."""

from functools import cache

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies

from memplan.errors import UsageError
from memplan.plan.checkpoint.schedule.check import violations
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import Schedule
from memplan.runtime.partition.split import Order, split
from tests.plan.checkpoint.ops.cases import CASES, run, schedules, stated

BITWISE = not torch.__version__.startswith("2.6.")


@cache
def _case(name: str):
    torch.manual_seed(0)
    model, batch = CASES[name]()
    return model, batch, *stated(model, batch)


def _eager(model: torch.nn.Module, batch: torch.Tensor) -> list[torch.Tensor]:
    buffers = [buffer.clone() for buffer in model.buffers()]
    model.zero_grad()
    torch.manual_seed(1)
    model(batch).backward()
    for buffer, value in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(value)
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=strategies.data())
def test_every_schedule_gives_the_gradients_of_eager_and_takes_what_it_says(name: str, data: strategies.DataObject):
    model, batch, joint, problem = _case(name)
    schedule = data.draw(schedules(problem))
    figures = figures_of(problem.graph, schedule)
    assert not violations(problem.graph, schedule, peak_bytes=figures.peak_bytes)
    torch.manual_seed(1)
    measured = run(model, batch, joint, problem, schedule)
    gradients = [each for each in measured.gradients if each is not None]
    for mine, theirs in zip(gradients, _eager(model, batch), strict=True):
        # On torch 2.6 the unplanned graph, too, is close to eager code but not bit for bit the same.
        assert torch.equal(mine, theirs) if BITWISE else torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    assert measured.peak_bytes == figures.peak_bytes


def test_a_value_is_copied_for_each_time_just_where_it_is_listed():
    _, _, joint, problem = _case("llama")
    graph, names = problem.graph, problem.graph.names
    readers = {node: [each for each in range(problem.boundary, len(names)) if node in graph.predecessors[each]]
               for node in range(problem.boundary) if node not in graph.pinned}  # fmt: skip
    chosen = max(readers, key=lambda node: (len(readers[node]), names[node].startswith("mm")))
    nodes = [each for node in range(len(names)) for each in ((chosen, node) if node in readers[chosen] else (node,))]
    _, plain = split(joint.module, problem.order(unplanned(graph)), joint.forward_outputs)
    _, backward = split(joint.module, problem.order(Schedule(nodes=tuple(nodes))), joint.forward_outputs)
    before = {node.name for node in _written(plain)}
    op, written = problem.nodes[chosen][0], _written(backward)
    fresh = [
        index
        for index, node in enumerate(written)
        if node.name not in before and node.target is op.target and node.meta["val"] is op.meta["val"]
    ]
    assert len(fresh) == len(readers[chosen]) > 1
    for index in fresh:
        # Views and getitems may stand between.
        assert any(user in written[index + 1 : index + 6] for user in written[index].users)


def _written(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.op == "call_function"]


def test_a_node_before_its_inputs_is_refused():
    _, _, joint, problem = _case("mlp")
    order = problem.order(unplanned(problem.graph))
    with pytest.raises(UsageError, match="in forward before it is there"):
        split(joint.module, Order(forward=order.forward[::-1], backward=order.backward), joint.forward_outputs)


def test_what_backward_does_not_read_is_not_saved():
    _, _, joint, problem = _case("mlp")
    order = problem.order(unplanned(problem.graph))
    forward, backward = split(joint.module, order, joint.forward_outputs)
    inputs = [node for node in backward.graph.nodes if node.op == "placeholder"]
    assert all(node.users for node in inputs)
    assert len(forward.graph.output_node().args[0]) == joint.forward_outputs + len(inputs) - 1
