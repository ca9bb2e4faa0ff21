"""Peaks that Megatron-LM's functional tests hold as goldens.

The figures are ``mem-max-allocated-bytes`` of tests/functional_tests/test_cases (the last of eight ranks, on a node of
H100s but for a few, up to 100 iterations): ``allocated_bytes.all.peak`` since the process began, as TensorBoard's
float32 keeps it. They rise until the first optimizer step that changes weights has made its moments. What runs here is
megatron-core: model, DistributedDataParallel, optimizer and pipeline schedule, as the last rank of a fake process
group. ``engine`` stands for Transformer Engine, on which it builds its layers there but for those named "local".

What it needs: a folder that ``MEMPLAN_MEGATRON`` names, with the package, installed by

    pip install --no-deps --target FOLDER megatron-core==0.16.1 einops==0.8.2
"""

from functools import partial

from published.case import Case, Excluded, Prediction
from published.megatron.exclusions import reason
from published.megatron.recipes import Recipe
from published.megatron.rows import RECIPES
from published.packages import predict_with
from published.table import Row, read_table

__all__ = ["BEGINNING", "END", "cases", "predicted", "recipe_of"]

BEGINNING, END = "meg-", "-dev_dgx_h100"
FLOAT_DIGITS = 24
"""Binary digits that a float32 keeps."""
ASSUMPTIONS = (
    "megatron-core 0.16.1 stands for the commits of May and August 2026",
    "apex's layer norm and softmax kernels and Transformer Engine take what their sources say",
    "no step overflows: the first of those that do not makes the highest peak",
)
ROUTED = "tokens are routed evenly at the moment of the peak"


def cases() -> tuple[list[Case], list[Excluded]]:
    """All rows of Megatron-LM's; none without the data."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for row in read_table():
        if not row["id"].startswith(BEGINNING):
            continue
        recipe = recipe_of(row["id"])
        if recipe is not None:
            found.append(_case(row, recipe))
        else:
            excluded.append(Excluded(id=row["id"], source=row["source"], reason=reason(row)))
    return found, excluded


def recipe_of(identity: str) -> Recipe | None:
    """Of a row of the table; None where it is left out."""
    return RECIPES.get(identity.removeprefix(BEGINNING).removesuffix(END))


def predicted(recipe: Recipe) -> Prediction:
    """Peaks of a recipe's last rank, in a process of its own."""
    return predict_with("MEMPLAN_MEGATRON", "published.megatron.program", "predicted", recipe)


def _case(row: Row, recipe: Recipe) -> Case:
    measured = round(float(row["notes"].partition("mem-max-allocated-bytes=")[2].partition(" ")[0]))
    return Case(
        id=row["id"],
        source=row["source"],
        workload="full",
        metric="allocated",
        measured=measured,
        resolution=2 ** (measured.bit_length() - 1 - FLOAT_DIGITS),
        predict=partial(predicted, recipe),
        assumptions=ASSUMPTIONS + (ROUTED,) * (recipe.expert_parallel > 1),
    )
