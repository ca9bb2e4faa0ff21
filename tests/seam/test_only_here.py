"""Nothing outside of ``memplan/seam`` names anything private of torch: no import, no attribute, no path to replace.

Names of operators (``torch.ops.aten._to_copy``) are the dispatcher's own and count as public; so does what a docstring
or a message to a user says.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import memplan

ROOT = Path(memplan.__file__).parent
SOURCES = [path for path in sorted(ROOT.rglob("*.py")) if ROOT / "seam" not in path.parents]
PATH = re.compile(r"(?:torch|triton)(?:\.\w+)+\.?")


def is_private(path: str) -> bool:
    """``torch.nn.Module._apply``, and not ``torch.nn.Module.__init__`` or ``torch.ops.aten._to_copy``."""
    parts = path.rstrip(".").split(".")
    return parts[:2] != ["torch", "ops"] and any(re.match(r"_(?!_)|_C$", part) for part in parts)


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and path of each private name of torch."""
    tree = ast.parse(source)
    imports = dict(imported(tree))
    yield from ((line, path) for line, path in imports.values() if is_private(path))
    local = {name: path for name, (_, path) in imports.items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            head, _, rest = path.partition(".")
            if head in local and PATH.fullmatch(f"torch.{rest}") and is_private(f"{local[head]}.{rest}"):
                yield node.lineno, f"{local[head]}.{rest}"
        elif isinstance(node, ast.Constant) and PATH.fullmatch(str(node.value)) and is_private(str(node.value)):
            yield node.lineno, str(node.value)


def imported(tree: ast.Module) -> Iterator[tuple[str, tuple[int, str]]]:
    """Local name → line and path of everything that comes from torch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    yield alias.asname or "torch", (node.lineno, alias.name if alias.asname else "torch")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for alias in node.names:
                yield alias.asname or alias.name, (node.lineno, f"{node.module}.{alias.name}")


def test_nothing_private_of_torch_is_named_outside_of_the_seam() -> None:
    assert len(SOURCES) > 500
    named = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in SOURCES
        for line, name in private_names(path.read_text(encoding="utf-8"))
    ]
    assert named == []


@pytest.mark.parametrize(
    "line",
    [
        "from torch._C import x",
        "from torch.utils import _pytree",
        "from torch.testing._internal.common_utils import x",
        "import torch\ntorch._foreach_add_([], 1)",
        "import torch._dynamo as dynamo\ndynamo.reset()",
        "from torch.utils import data as loading\nloading._utils.fetch",
        "x = 'torch.nn.Module._apply'",
    ],
)
def test_what_is_private_is_seen(line: str) -> None:
    assert list(private_names(line))


@pytest.mark.parametrize(
    "line",
    [
        "import torch\ntorch.ops.aten._to_copy(x)",
        "import torch\ntorch.nn.Module.__init__(x)",
        "'call torch.cuda.memory._record_memory_history() first'",
        "from memplan.seam.modes import disable_current_modes",
    ],
)
def test_what_is_not_private_passes(line: str) -> None:
    assert not list(private_names(line))
