"""One word for one thing: no two public classes share a name."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "memplan"
SHARED: dict[str, str] = {}
"""Name that several classes may have → why."""


def test_no_two_public_classes_share_a_name() -> None:
    homes = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert len(homes) > 500
    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in SHARED} == {}
