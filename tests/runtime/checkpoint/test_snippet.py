"""Stand-alone code: no memplan in it, and the same gradients and saved bytes as the plan that it was made of."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from memplan.errors import UsageError
from memplan.runtime.checkpoint.plan_file import parse_plan
from memplan.runtime.checkpoint.records import CheckpointPlan
from memplan.runtime.checkpoint.snippet import stand_alone_code
from tests.runtime.checkpoint.chains import PLANS, Chain, Plain, assert_equal, pair, seeded, step
from tests.runtime.checkpoint.saved import kept

each_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


def applied(code: str, model: nn.Module) -> nn.Module:
    pasted: Any = ModuleType("pasted")
    sys.modules["pasted"] = pasted
    exec(compile(code, "pasted.py", "exec"), pasted.__dict__)
    pasted.apply_plan(model)
    return model


@each_plan
def test_the_code_does_what_the_plan_does(plan: CheckpointPlan) -> None:
    plain, planned = pair(Chain, plan)
    pasted = applied(stand_alone_code(plan), seeded(Chain))
    assert any("forward" in module.__dict__ for module in pasted.modules())
    for _ in range(2):
        expected = step(plain)
        assert_equal(step(pasted), expected)
        assert_equal(step(planned), expected)


@each_plan
def test_the_code_keeps_what_the_plan_keeps(plan: CheckpointPlan) -> None:
    build = lambda: Chain(4, Plain)  # noqa: E731
    _, planned = pair(build, plan)
    pasted = applied(stand_alone_code(plan), seeded(build))
    assert kept(pasted) == kept(planned)


@each_plan
def test_the_code_stands_alone(plan: CheckpointPlan) -> None:
    code = stand_alone_code(plan)
    tree = ast.parse(code)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(str(module).startswith("memplan") for module in imported)
    defined = Counter(node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef))
    defined.update(target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    defined.update(node.target.id for node in tree.body if isinstance(node, ast.AnnAssign))
    assert max(defined.values()) == 1
    assert max(map(len, code.splitlines())) <= 120


@pytest.mark.slow
def test_the_code_runs_where_there_is_no_memplan(tmp_path: Path) -> None:
    code = stand_alone_code(PLANS["nested"]) + (
        "\nmodel = nn.Module()\nmodel.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))\napply_plan(model)\n"
        "import sys\nassert 'memplan' not in sys.modules\n"
    )
    (tmp_path / "pasted.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-I", "pasted.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_small_plan_needs_little_code() -> None:
    code = stand_alone_code(PLANS["checkpoint"])
    assert "Chain" not in {node.name for node in ast.parse(code).body if isinstance(node, ast.ClassDef)}
    assert len(code) < len(stand_alone_code(PLANS["mixed"])) / 2


def test_patterns_are_refused() -> None:
    with pytest.raises(UsageError, match=r"exact names: layers\.\*"):
        stand_alone_code(parse_plan({"modules": ["layers.*"]}))
