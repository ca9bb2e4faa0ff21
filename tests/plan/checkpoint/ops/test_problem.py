"""A joint graph becomes a problem whose figures are those of real runs (tests of runtime/partition run them)."""

from functools import cache

import pytest
import torch
from torch import nn
from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta

from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.ops.capture.capture import joint_graph
from memplan.plan.checkpoint.ops.capture.cost import bytes_moved, flops, roofline_seconds
from memplan.plan.checkpoint.ops.capture.problem import BOUNDARY, problem_of
from memplan.plan.checkpoint.schedule.check import violations
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import Schedule
from tests.plan.checkpoint.ops.cases import CASES, stated


@cache
def _stated(name: str):
    model, batch = CASES[name]()
    return model, batch, *stated(model, batch)


def _numbers(name: str, target: object) -> list[int]:
    _, _, _, problem = _stated(name)
    return [number for number, nodes in enumerate(problem.nodes) if nodes and nodes[0].target is target]


@pytest.mark.parametrize("name", CASES)
def test_the_unplanned_order_is_a_schedule_and_forward_comes_first(name: str):
    _, _, _, problem = _stated(name)
    assert not violations(problem.graph, unplanned(problem.graph))
    assert problem.graph.names[problem.boundary] == BOUNDARY
    assert all(source < number for number, sources in enumerate(problem.graph.predecessors) for source in sources)


@pytest.mark.parametrize("name", CASES)
def test_fixed_bytes_are_parameters_buffers_batch_and_tangent(name: str):
    model, batch, _, problem = _stated(name)
    tensors = [*model.parameters(), *model.buffers(), batch, torch.ones(())]
    assert problem.graph.fixed_bytes == sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_outputs_with_their_bytes(name: str):
    model, _, _, problem = _stated(name)
    late = [output for output in problem.graph.outputs if output > problem.boundary]
    assert sum(problem.graph.sizes[output] for output in late) == sum(each.nbytes for each in model.parameters())


def test_dropout_runs_once_and_its_mask_lives_on_its_own():
    (dropout,) = _numbers("mlp", torch.ops.aten.native_dropout.default)
    _, _, _, problem = _stated("mlp")
    (mask,) = problem.companions[dropout]
    assert {dropout, mask} <= problem.graph.pinned
    assert (problem.graph.sizes[dropout], problem.graph.sizes[mask]) == (4 * 16 * 4, 4 * 16)


def test_attention_without_dropout_may_run_again_and_with_it_may_not():
    class Attend(nn.Module):
        def __init__(self, dropout: float) -> None:
            super().__init__()
            self.dropout, self.scale = dropout, nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x * self.scale
            return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=self.dropout).sum()

    for dropout, is_pinned in ((0.0, False), (0.5, True)):
        _, problem = stated(Attend(dropout), torch.randn(1, 2, 8, 4))
        graph = problem.graph
        random = [
            number
            for number, nodes in enumerate(problem.nodes)
            if nodes and torch.Tag.nondeterministic_seeded in getattr(nodes[0].target, "tags", ())
        ]
        before = [number for number in random if number < problem.boundary]
        assert before
        assert all(number in graph.pinned for number in before) is is_pinned


def test_batch_norm_may_run_again_though_its_statistics_are_written():
    names = ("_native_batch_norm_legit_functional", "native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit")
    _, _, _, problem = _stated("convnet")
    norms = [n for n, name in enumerate(problem.graph.names) if name.startswith(names) and n < problem.boundary]
    assert len(norms) == 4
    # Older AOTAutograds cannot save what forward writes to again: then they run once.
    can_rerun = hasattr(ViewAndMutationMeta, "tensors_saved_for_backwards_no_vc_check_slice")
    assert set(norms) & problem.graph.pinned == (set() if can_rerun else set(norms))


def test_gradients_and_results_of_forward_run_once():
    _, _, _, problem = _stated("llama")
    late = set(range(problem.boundary, len(problem.graph.names)))
    needing = {number for number in late if problem.boundary in _all_before(problem, number)}
    assert needing <= problem.graph.pinned
    assert {output for output in problem.graph.outputs if output < problem.boundary} <= problem.graph.pinned


def _all_before(problem, number: int) -> set[int]:
    found: set[int] = set()
    waiting = [number]
    while waiting:
        for source in problem.graph.predecessors[waiting.pop()]:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def test_cost_is_the_slower_of_arithmetic_and_traffic():
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU())
    joint = joint_graph(model, (torch.randn(4, 8),), loss=lambda y: y.sum())
    ops = {str(node.target): node for node in joint.module.graph.nodes}
    product = ops["aten.mm.default"]
    rectifier = ops["aten.relu.default"]
    first = next(node for node in joint.module.graph.nodes if str(node.target) == "aten.mm.default")
    assert flops(first) == 2 * 4 * 8 * 16
    assert (flops(rectifier), bytes_moved(rectifier)) == (0, 2 * 4 * 16 * 4)
    cost = roofline_seconds(Roofline(flops=1.0, bandwidth=1.0, assumed=False))
    assert cost(rectifier) == 512
    assert cost(product) == flops(product)


def test_attention_on_a_cpu_is_arithmetic_too():
    class Attend(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x).sum()

    joint = joint_graph(Attend(), (torch.randn(2, 3, 8, 4, requires_grad=True),))
    kernels = [node for node in joint.module.graph.nodes if "dot_product" in str(node.target)]
    product = 2 * 2 * 3 * 8 * 8 * 4
    # Forward multiplies queries by keys and weights by values; backward does the first again and has two for each.
    assert [flops(node) for node in kernels] == [2 * product, 5 * product]


def test_a_step_of_several_arguments_and_a_loss_from_outside():
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, batch: dict[str, torch.Tensor], factor: float) -> torch.Tensor:
            return (batch["x"] @ self.weight) * factor

    joint = joint_graph(Pair(), ({"x": torch.randn(3, 4)}, 2.0), loss=lambda y: y.pow(2).mean())
    problem = problem_of(joint, flops)
    assert joint.forward_outputs == 1
    assert figures_of(problem.graph, unplanned(problem.graph)).cost == 2 * (2 * 3 * 4 * 4)


def test_what_comes_with_an_op_is_there_as_soon_as_it_has_run():
    _, _, _, problem = _stated("mlp")
    number = next(number for number, companions in enumerate(problem.companions) if companions)
    moved = problem.companions[number][0]
    late = [node for node in range(problem.boundary) if node != moved]
    readers = [place for place, node in enumerate(late) if moved in problem.graph.predecessors[node]]
    late.insert(min(readers, default=len(late)), moved)
    nodes = (*late, *range(problem.boundary, len(problem.graph.names)))
    settled = problem.settled(Schedule(nodes=nodes))
    assert settled.nodes == tuple(range(len(problem.graph.names)))
