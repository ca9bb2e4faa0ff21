"""Plan files: what is written is read again; what is malformed is refused with every reason at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.checkpoint.plan_file import parse_plan, plan_text, read_plan, write_plan
from memplan.runtime.checkpoint.records import (
    VERSION,
    Action,
    BlockFingerprint,
    BlockPlan,
    CheckpointPlan,
    Fingerprint,
    Promise,
    SavedOp,
    Segment,
)
from memplan.units import Bytes

words = st.text(st.characters(codec="utf-8", exclude_characters="."), min_size=1, max_size=8)
counts = st.integers(min_value=0, max_value=2**53)
saved_ops = st.lists(
    st.builds(SavedOp, op=words, calls=st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True).map(tuple)),
    max_size=3,
    unique_by=lambda entry: entry.op,
).map(tuple)
block_plans = st.one_of(
    st.builds(BlockPlan, module=words, action=st.just(Action.SELECTIVE), saved=saved_ops),
    st.builds(BlockPlan, module=words, action=st.sampled_from([Action.KEEP, Action.CHECKPOINT])),
)
fingerprints = st.builds(
    Fingerprint,
    model=words,
    parameters=counts,
    blocks=words,
    each=st.lists(st.builds(BlockFingerprint, module=words, parameters=counts, structure=words), max_size=3).map(tuple),
)
promises = st.builds(
    Promise,
    step=words,
    device=words,
    budget_bytes=counts.map(Bytes),
    peak_before_bytes=counts.map(Bytes),
    peak_after_bytes=counts.map(Bytes),
    overhead_ratio=st.floats(0, 10, allow_nan=False),
)


@st.composite
def plans(draw: st.DrawFn) -> CheckpointPlan:
    names = draw(st.lists(words, min_size=2, max_size=8, unique=True))
    cut = draw(st.integers(2, len(names)))
    return CheckpointPlan(
        blocks=tuple(draw(st.lists(block_plans, min_size=1, max_size=5, unique_by=lambda block: block.module))),
        segments=draw(
            st.sampled_from(
                [
                    (),
                    (Segment(modules=tuple(names)),),
                    (Segment(modules=tuple(names[:cut])), Segment(modules=tuple(names))),
                ]
            )
            if cut < len(names)
            else st.just((Segment(modules=tuple(names)),))
        ),
        prefetch=draw(st.booleans()),
        fingerprint=draw(st.none() | fingerprints),
        promise=draw(st.none() | promises),
    )


@given(plans())
def test_what_is_written_is_read_again(plan: CheckpointPlan) -> None:
    assert parse_plan(json.loads(plan_text(plan))) == plan


def test_a_file_is_for_people(tmp_path: Path) -> None:
    plan = CheckpointPlan(blocks=(BlockPlan(module="blöcke.0", action=Action.CHECKPOINT),))
    write_plan(plan, tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text(encoding="utf-8")
    assert text == (
        '{\n  "blocks": [\n    {\n      "action": "checkpoint",\n      "module": "blöcke.0"\n    }\n  ],\n'
        f'  "schema_version": "{VERSION}",\n  "segments": []\n}}\n'
    )
    assert read_plan(tmp_path / "plan.json") == plan


def test_the_short_form() -> None:
    plan = parse_plan({"modules": ["layers.0", "encoder.*.mlp"], "budget": 1})
    assert [(block.module, block.action) for block in plan.blocks] == [
        ("layers.0", Action.CHECKPOINT),
        ("encoder.*.mlp", Action.CHECKPOINT),
    ]


def test_later_versions_may_say_more() -> None:
    parse_plan({"schema_version": "1.9", "blocks": [{"module": "a", "action": "keep", "tone": "soft"}], "more": {}})


BLOCK = {"module": "a", "action": "keep"}


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        ([], ["it: expected an object"]),
        ({}, ["it names no modules"]),
        ({"modules": []}, ["it names no modules"]),
        ({"modules": "layers.0"}, ["modules: expected a list"]),
        ({"modules": [1]}, ["modules[0]: expected text"]),
        ({"modules": [""]}, ["a module or an op has no name"]),
        ({"modules": ["a"], "blocks": []}, ["say everything under blocks"]),
        ({"modules": ["a", "a"]}, ["a stands in it 2 times"]),
        ({"schema_version": "2.0", "blocks": [BLOCK]}, ["schema_version 2.0 is not read here"]),
        ({"schema_version": 1, "blocks": [BLOCK]}, ["no schema_version"]),
        ({"blocks": [{"module": "a", "action": "melt"}]}, ["blocks[0].action: expected one of keep, checkpoint"]),
        (
            {"blocks": [{"module": "a"}, {"action": "keep"}, 7]},
            [
                "blocks[0].action: missing",
                "blocks[1].module: missing",
                "blocks[2]: expected an object",
            ],
        ),
        (
            {"blocks": [{"module": "a", "action": "selective", "saved": [{"op": "aten.mm.default", "calls": [True]}]}]},
            ["blocks[0].saved[0].calls[0]: expected a whole number"],
        ),
        (
            {"blocks": [{"module": "a", "action": "selective", "saved": [{"op": "o", "calls": [-1]}]}]},
            ["a keeps calls [-1] of o"],
        ),
        (
            {"blocks": [{"module": "a", "action": "selective", "saved": [{"op": "o", "calls": []}]}]},
            ["a keeps calls [] of o"],
        ),
        (
            {"blocks": [{"module": "a", "action": "selective", "saved": [{"op": "o", "calls": [0]}] * 2}]},
            ["a names o 2 times"],
        ),
        (
            {"blocks": [{"module": "a", "action": "checkpoint", "saved": [{"op": "o", "calls": [0]}]}]},
            ["a is no selective block, but keeps o"],
        ),
        (
            {"blocks": [{"module": "a", "action": "offload"}, {"module": "a.b", "action": "checkpoint"}]},
            ["a.b (checkpoint) stands inside a (offload)"],
        ),
        (
            {"blocks": [{"module": "a", "action": "checkpoint"}, {"module": "a.b", "action": "offload"}]},
            ["a.b (offload) stands inside a (checkpoint)"],
        ),
        ({"segments": [["a"]]}, ["the segment a … a needs two or more blocks"]),
        ({"segments": [["a", "a"]]}, ["needs two or more blocks, each once"]),
        ({"segments": [["a", "a.b"]]}, ["holds a.b and what is around it"]),
        ({"segments": [["a", "b"], ["b", "c"]]}, ["the segments a … b and b … c overlap"]),
        ({"segments": [["a", "b", "c"], ["a", "c"]]}, ["overlap"]),
        ({"segments": [["a", "b"], ["a", "b"]]}, ["overlap"]),
        (
            {"blocks": [{"module": "b", "action": "offload"}], "segments": [["a", "b"]]},
            ["b is offloaded and stands in the segment a … b"],
        ),
        (
            {"blocks": [BLOCK], "promise": {"step": 1}},
            ["promise.step: expected text", "promise.device: missing", "promise.budget_bytes: missing"],
        ),
        ({"blocks": [BLOCK], "fingerprint": {"model": "M", "each": [{}]}}, ["fingerprint.each[0].module"]),
    ],
)  # fmt: skip
def test_every_problem_is_named_at_once(tmp_path: Path, content: object, reasons: list[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError) as error:
        read_plan(path)
    assert error.value.where == str(path)
    assert error.value.hint
    for reason in reasons:
        assert reason in error.value.what


@pytest.mark.parametrize("content", [b"not json", b"\xff\xfe\x00", b"[" * 100_000])
def test_what_is_no_json_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="the plan cannot be read") as error:
        read_plan(path)
    assert error.value.where == str(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be written"):
        write_plan(parse_plan({"modules": ["a"]}), tmp_path / "no" / "plan.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    [
        "blocks",
        "segments",
        "modules",
        "fingerprint",
        "promise",
        "schema_version",
        "module",
        "action",
        "saved",
        "op",
        "calls",
    ]
)
near_plans = st.recursive(
    json_values | st.sampled_from([*Action, "a", "a.b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(near_plans)
def test_nothing_but_a_usage_error_comes_of_any_content(content: object) -> None:
    try:
        plan = parse_plan(content)
    except UsageError:
        return
    assert parse_plan(json.loads(plan_text(plan))) == plan


def test_plans_are_read_without_torch() -> None:
    code = (
        "import sys, memplan; from memplan.runtime.checkpoint import plan_file, snippet, mismatch; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
