"""Peaks that Megatron-LM's functional tests hold as goldens, of runs with megatron-core's own layers.

The figures are ``mem-max-allocated-bytes`` of tests/functional_tests/test_cases (the last of eight ranks on a node of
H100s, 100 iterations): ``allocated_bytes.all.peak`` since the process began, as TensorBoard's float32 keeps it. They
rise until the first optimizer step that changes weights has made its moments. What runs here is megatron-core: model,
DistributedDataParallel, optimizer and pipeline schedule, as the last rank of a fake process group.

What it needs: a folder that ``MEMPLAN_MEGATRON`` names, with the package, installed by

    pip install --no-deps --target FOLDER megatron-core==0.16.1
"""

from functools import partial

from published.case import Case, Excluded
from published.megatron.recipes import RECIPES, Recipe
from published.packages import predict_with
from published.table import Row, read_table

__all__ = ["cases"]

BEGINNING, END = "meg-", "-dev_dgx_h100"
RESOLUTION = 256
"""Half of what a float32 between 2^32 and 2^33 can tell apart; between 2^30 and 2^32 it is finer."""
ASSUMPTIONS = (
    "megatron-core 0.16.1 stands for the commits of May and August 2026",
    "apex's layer norm and softmax kernels and Transformer Engine's Adam take what their sources say",
    "no step overflows: the first of those that do not makes the highest peak",
)
TRANSFORMER_ENGINE = "Transformer Engine's layers (several GPUs, too): it has no build for the CPU"
VOCABULARY = "the vocabulary file's size is not said, nor whether there is a binary head"


def cases() -> tuple[list[Case], list[Excluded]]:
    """All rows of Megatron-LM's; none without the data."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for row in read_table():
        if not row["id"].startswith(BEGINNING):
            continue
        recipe = RECIPES.get(row["id"].removeprefix(BEGINNING).removesuffix(END))
        if recipe is not None:
            found.append(_case(row, recipe))
        else:
            reason = VOCABULARY if "local" in row["attention"] else TRANSFORMER_ENGINE
            excluded.append(Excluded(id=row["id"], source=row["source"], reason=reason))
    return found, excluded


def _case(row: Row, recipe: Recipe) -> Case:
    return Case(
        id=row["id"],
        source=row["source"],
        workload="full",
        metric="allocated",
        measured=round(float(row["notes"].partition("mem-max-allocated-bytes=")[2].partition(" ")[0])),
        resolution=RESOLUTION,
        predict=partial(predict_with, "MEMPLAN_MEGATRON", "published.megatron.program", "predicted", recipe),
        assumptions=ASSUMPTIONS,
    )
