"""Every row of the table of published peaks that ran on more than one GPU: complete, or left out with the reason.

All of it was decided before any error was looked at.
"""

from collections.abc import Callable

from published import litgpt, megatron
from published.case import Case, Excluded
from published.litgpt.recipes import LABELLED_SHARDED
from published.megatron.rows import RECIPES as MEGATRON
from published.sharded.records import Row
from published.table import Row as Line
from published.table import figure, read_table
from published.torchtitan.recipes import RECIPES

COMPILED = "every block compiled by torch.compile, float8 by Inductor's kernels, on a nightly of the day"
REASONS: tuple[tuple[Callable[[Line], bool], str], ...] = (
    (lambda line: "AMD" in line["gpu"], f"AMD's allocator and libraries; {COMPILED}"),
    (
        lambda line: line["id"].startswith("ao-moe"),
        "a prototype's grouped kernels, compiled, on commits that are not said",
    ),
    (lambda line: line["source"].startswith("torchao"), COMPILED),
    (
        lambda line: line["source"].startswith("accelerate"),
        "the source says neither batch, length, precision nor optimizer, nor which counter it read",
    ),
    (lambda line: line["id"].startswith("qwen-"), "a sum over all GPUs, of a counter that is not said"),
    (lambda line: line["metric"] == "unknown", "the source does not say which counter it read"),
    (
        lambda line: "device_map" in line["parallelism"],
        "layers dealt out by device_map, which is no --parallel; lengths follow a data set that is not at hand",
    ),
)
"""The first that holds says why a row of no module is left out."""


def several_gpus(line: Line) -> bool:
    """Did it run on more than one?"""
    return line["n_gpus"] not in ("", "1")


def rows() -> list[Row]:
    """All of them, in the table's order; none without the data."""
    cases, excluded = _modules()
    made = []
    for line in filter(several_gpus, read_table()):
        case = cases.get(line["id"])
        measured = case.measured if case else figure(line)[0]
        kind, reason = _kind(line), ""
        if not kind:
            reason = excluded.get(line["id"]) or _reason(line)
        expandable = True if line["id"] in RECIPES else None
        made.append(
            Row(
                id=line["id"], source=line["source"], ranks=line["n_gpus"].partition(" ")[0], kind=kind,
                metric=line["metric"], measured=measured, expandable=expandable, reason=reason,
            )
        )  # fmt: skip
    return made


def _modules() -> tuple[dict[str, Case], dict[str, str]]:
    cases: list[Case] = []
    excluded: list[Excluded] = []
    for module in (megatron, litgpt):
        found, without = module.cases()
        cases += found
        excluded += without
    return {each.id: each for each in cases}, {each.id: each.reason for each in excluded}


def _kind(line: Line) -> str:
    if line["id"] in RECIPES:
        return "FSDP2, eager"
    if line["id"] in LABELLED_SHARDED:
        return "one GPU"
    test_case = line["id"].removeprefix(megatron.BEGINNING).removesuffix(megatron.END)
    return "Megatron-LM" if test_case in MEGATRON else ""


def _reason(line: Line) -> str:
    for holds, text in REASONS:
        if holds(line):
            return text
    raise LookupError(line["id"])
