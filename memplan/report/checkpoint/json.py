"""The JSON reports of ``memplan checkpoint-plan``, of blocks and of ops."""

from collections.abc import Mapping

from memplan.contract.document import Document, head
from memplan.contract.table import Constant, Table, if_any
from memplan.plan.checkpoint.blocks.answer.records import BlockRow, CheckpointAnswer, ParetoPoint
from memplan.plan.checkpoint.schedule.answer import GraphAnswer
from memplan.runtime.checkpoint.records import Segment


def _fits(answer: GraphAnswer) -> bool:
    """Does the schedule meet the budget?"""
    return answer.peak_after_bytes is not None and answer.peak_after_bytes <= answer.budget_bytes


def _proved(answer: GraphAnswer) -> bool:
    """Is the outcome certain?"""
    return answer.outcome in {"optimal", "infeasible"}


def _bound_for(answer: GraphAnswer) -> str:
    """What the bound holds for; empty without one."""
    return "every schedule" if answer.outcome == "infeasible" else answer.bound_for


DOCUMENT = Document(
    name="checkpoint-plan",
    root=CheckpointAnswer | GraphAnswer,
    tables={
        CheckpointAnswer: Table(
            keys={
                **head("checkpoint-plan"),
                "gpu": {"name": "device", "title": "device_title"},
                "level": Constant("block"),
                "result": "outcome",
                "fits": "fits",
                "segments": "plan.segments",
                "solve_seconds": "solve_seconds",
                "timings": {
                    "trace_seconds": "trace_seconds",
                    "solve_seconds": "solve_seconds",
                    "prove_seconds": "prove_seconds",
                },
                "versions": {"memplan": "memplan_version", "torch": "torch_version"},
            },
            omit=("step", "result"),
        ),
        Segment: "modules",
        GraphAnswer: Table(
            keys={
                **head("checkpoint-plan"),
                # What only a traced step of blocks has is empty.
                "gpu": Constant(None),
                "options": Constant({}, Mapping[str, str]),
                "level": Constant("op"),
                "method": Constant("search"),
                "result": "outcome",
                "fits": _fits,
                "proved": _proved,
                "bound_for": _bound_for,
                "flops_ratio": Constant(None),
                "solve_seconds": "solve_seconds",
                "timings": {
                    "trace_seconds": "trace_seconds",
                    "solve_seconds": "solve_seconds",
                    "prove_seconds": Constant(0.0, float),
                },
                "traces": Constant(0),
                "rounds": Constant(0),
                "blocks": Constant((), tuple[BlockRow, ...]),
                "segments": Constant((), tuple[Segment, ...]),
                "model_place": Constant(None),
                "pareto": Constant((), tuple[ParetoPoint, ...]),
                "not_modelled": Constant((), tuple[str, ...]),
                "versions": {"memplan": "memplan_version", "torch": if_any("torch_version")},
            },
            omit=("nodes", "edges", "fixed_bytes"),
        ),
    },
)
render = DOCUMENT.render
