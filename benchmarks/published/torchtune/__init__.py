"""Peaks that torchtune publishes of its single-device recipes, run again on fake tensors.

The figures are the README's table of optimization flags (November 2024: Llama 3.2 3B, 2 x 4096 tokens, bf16, A100; peak
*active*, which on one stream is *allocated*) and what docs/source/tutorials/e2e_flow.rst shows after the model has been
built. The table is cumulative: from its third line on the model is compiled, from its fourth, which is not among the
rows, the logits are cut into chunks.

What it needs: a folder that ``MEMPLAN_TORCHTUNE`` names, with the packages of their time, installed by

    pip install --no-deps --target FOLDER torchtune==0.4.0 torchao==0.6.1 omegaconf antlr4-python3-runtime==4.9.3 \
        sentencepiece tiktoken blobfile psutil
"""

from functools import partial

from published.case import Case, Excluded
from published.others import COUNTER, LENGTHS
from published.packages import predict_with
from published.table import Row, figure, read_table

__all__ = ["cases"]

BEGINNING = "tune-"
KERNEL = "the compiled FlexAttention kernel keeps what flash attention keeps: its inputs, output and log-sum-exp"
PROGRAMS = {
    "tune-flags-95": ("packed", "full", (KERNEL, "two steps, without gradient accumulation")),
    "tune-flags-96": ("compiled", "compiled", (KERNEL, "two steps, without gradient accumulation")),
    "tune-flags-98": ("checkpointed", "compiled", (KERNEL, "two steps, without gradient accumulation")),
    "tune-flags-99": ("fused_into_backward", "compiled", (KERNEL,)),
    "tune-e2e-init-alloc": ("lora_model", "init", ("nothing is allocated before the model",)),
    "tune-e2e-init-res": ("lora_model", "init", ("nothing is allocated before the model",)),
}
"""Id → name in ``program``, class of workload, assumptions."""
OFFLOADED = "activation offloading, which copies on streams of its own, and torchao's 8-bit states or NF4 weights"


def cases() -> tuple[list[Case], list[Excluded]]:
    """All rows of torchtune's; none without the data."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for row in read_table():
        if not row["id"].startswith(BEGINNING):
            continue
        if row["id"] in PROGRAMS:
            found.append(_case(row))
        else:
            excluded.append(Excluded(id=row["id"], source=row["source"], reason=_reason(row)))
    return found, excluded


def _reason(row: Row) -> str:
    if row["id"].startswith("tune-flags-"):
        return OFFLOADED
    if row["metric"] == "unknown":
        return COUNTER
    return LENGTHS


def _case(row: Row) -> Case:
    program, workload, assumptions = PROGRAMS[row["id"]]
    measured, resolution = figure(row)
    if row["metric"] == "active":
        # The table here has 60.0, and so had the README: one decimal of a GiB.
        resolution = round(2**30 / 10 / 2)
    return Case(
        id=row["id"],
        source=row["source"],
        workload=workload,
        metric="reserved" if row["metric"] == "reserved" else "allocated",
        measured=measured,
        resolution=resolution,
        predict=partial(predict_with, "MEMPLAN_TORCHTUNE", "published.torchtune.program", program),
        assumptions=assumptions,
    )
