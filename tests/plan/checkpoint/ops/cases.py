"""Joint graphs of small models, random schedules of them, and their run on real tensors."""

from collections.abc import Callable

import torch
from hypothesis import strategies
from torch import nn

from memplan.plan.checkpoint.ops.capture.capture import JointGraph, joint_graph
from memplan.plan.checkpoint.ops.capture.cost import ASSUMED_RATES, roofline_seconds
from memplan.plan.checkpoint.ops.capture.problem import JointProblem, problem_of
from memplan.plan.checkpoint.schedule.records import Schedule
from memplan.runtime.partition.split import split
from tests.plan.checkpoint.ops.models import ConvNet, Llama
from tests.runtime.partition.measure import Measured, measure


def mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = (nn.Linear(8, 16), nn.LayerNorm(16), nn.Dropout(0.5), nn.GELU(), nn.Linear(16, 8), nn.Tanh())
    return nn.Sequential(*layers, nn.Flatten(0), nn.LogSoftmax(0), Total()), torch.randn(4, 8)


def llama(layers: int = 1, dropout: float = 0.1) -> tuple[nn.Module, torch.Tensor]:
    return Llama(layers=layers, dropout=dropout, tied=True), torch.randint(0, 64, (2, 16))


def convnet() -> tuple[nn.Module, torch.Tensor]:
    return ConvNet(), torch.randn(2, 3, 8, 8)


class Total(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


CASES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {"mlp": mlp, "llama": llama, "convnet": convnet}


def stated(model: nn.Module, batch: torch.Tensor) -> tuple[JointGraph, JointProblem]:
    joint = joint_graph(model, (batch,))
    return joint, problem_of(joint, roofline_seconds(ASSUMED_RATES))


def run(
    model: nn.Module, batch: torch.Tensor, joint: JointGraph, problem: JointProblem, schedule: Schedule
) -> Measured:
    """Forward and backward of a schedule on real tensors."""
    forward, backward = split(joint.module, problem.order(schedule), joint.forward_outputs)
    state = [tensor.detach().clone() for tensor in (*model.parameters(), *model.buffers())]
    with torch.no_grad():
        return measure(forward, backward, [*state, batch], [torch.ones(())], joint.forward_outputs)


@strategies.composite
def schedules(draw: strategies.DrawFn, problem: JointProblem) -> Schedule:
    """Settled schedules: everything once in order, drawn values again before they are read, others for nothing."""
    graph = problem.graph
    again = draw(strategies.sets(strategies.integers(0, problem.boundary - 1), max_size=problem.boundary))
    everywhere = draw(strategies.booleans())
    nodes = list(range(problem.boundary + 1))
    fresh: set[int] = set()

    def renew(node: int) -> None:
        if node in fresh or node in graph.pinned or node >= problem.boundary or node not in again:
            return
        for source in graph.predecessors[node]:
            renew(source)
        nodes.append(node)
        fresh.add(node)

    for node in range(problem.boundary + 1, len(graph.names)):
        if everywhere:
            fresh.clear()
        for source in graph.predecessors[node]:
            renew(source)
        nodes.append(node)
    free = [node for node in range(problem.boundary) if node not in graph.pinned]
    for node in draw(strategies.lists(strategies.sampled_from(free), max_size=5)):
        nodes.insert(draw(strategies.integers(nodes.index(problem.boundary) + 1, len(nodes))), node)
    return problem.settled(Schedule(nodes=tuple(nodes)))
