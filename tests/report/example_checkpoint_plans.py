"""Answers of ``checkpoint-plan``, made by hand."""

from memplan.plan.checkpoint.blocks.answer.records import BlockRow, CheckpointAnswer, ParetoPoint
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, OptimalChoice
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan
from memplan.units import GIB, MIB, Bytes


def _row(index: int) -> BlockRow:
    action = Action.CHECKPOINT if index < 7 else Action.SELECTIVE if index < 10 else Action.KEEP
    return BlockRow(
        module=f"transformer.h.{index}",
        kind=0,
        action=action,
        saved=("aten.addmm.default x3",) if action is Action.SELECTIVE else (),
        kept_bytes=Bytes({Action.CHECKPOINT: 8, Action.SELECTIVE: 100, Action.KEEP: 412}[action] * MIB),
        kept_before_bytes=Bytes(412 * MIB),
        offloaded_bytes=Bytes(0),
        seconds={Action.CHECKPOINT: 0.01, Action.SELECTIVE: 0.01, Action.KEEP: 0.0}[action],
        segment=None,
    )


def answer() -> CheckpointAnswer:
    """Seven blocks checkpointed, three selective, two kept."""
    rows = tuple(_row(index) for index in range(12))
    return CheckpointAnswer(
        target="examples/gpt2.py",
        device="a100-80g",
        device_title="NVIDIA A100",
        step="batch 8 x seq 1024 · bf16-mixed · adamw",
        options={"precision": "bf16-mixed"},
        outcome="optimal",
        proved=True,
        result=OptimalChoice(choice=BlockChoice(options=(0,) * 12), seconds=0.1),
        method="ilp",
        plan=CheckpointPlan(
            blocks=tuple(BlockPlan(module=row.module, action=row.action) for row in rows if row.action != "keep")
        ),
        model_place=None,
        budget_bytes=Bytes(24 * GIB),
        peak_before_bytes=Bytes(31 * GIB),
        peak_after_bytes=Bytes(23 * GIB),
        activation_before_bytes=Bytes(10 * GIB),
        overhead_ratio=0.1,
        flops_ratio=0.09,
        gap=0.0,
        bound_for="plan of these options",
        least_feasible_bytes=Bytes(12 * GIB),
        binding="backward of transformer.h.3",
        blocks=rows,
        pareto=tuple(
            ParetoPoint(peak_bytes=Bytes((12 + step) * GIB), overhead_ratio=(19 - step) * 0.015) for step in range(20)
        ),
        rounds=1,
        traces=4,
        trace_seconds=6.1,
        solve_seconds=0.21,
        prove_seconds=2.2,
        assumptions=("blocks of one kind are alike",),
        not_modelled=("workspaces of closed libraries",),
        torch_version="2.13.0",
        memplan_version="0.1.0",
    )
