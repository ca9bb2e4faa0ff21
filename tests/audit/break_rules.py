"""Break every condition of every check once, and see whether a case notices: ``python -m tests.audit.break_rules``.

Each ``if`` is made true, then false; each ``and`` and ``or`` loses one part at a time. A change that no case notices is
listed: a guard without a case of its own, or one that another guard implies. No test by itself: it takes a minute.
"""

import ast
import copy
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from memplan.audit.code import Code
from memplan.audit.inspect import CHECKS
from memplan.audit.source import Source, parse_python
from tests.audit.cases import HEAD, NEGATIVE, POSITIVE


def sources(bodies: tuple[str, ...]) -> list[Source]:
    """Parsed cases."""
    return [parse_python((HEAD + body).encode(), "train.py") for body in bodies]


CASES = {rule: (sources(POSITIVE[rule]), sources(NEGATIVE[rule])) for rule in CHECKS}


def broken(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """Line, what was done, and the changed module."""
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.If):
            for value in (True, False):
                yield node.lineno, f"if → {value}", _changed(tree, number, "test", ast.Constant(value))
        if isinstance(node, ast.BoolOp):
            for index in range(len(node.values)):
                rest = [each for place, each in enumerate(node.values) if place != index]
                rest = rest if len(rest) > 1 else rest * 2  # "a and a" is a.
                yield (
                    node.lineno,
                    f"without {ast.unparse(node.values[index])[:60]}",
                    _changed(tree, number, "values", rest),
                )


def _changed(tree: ast.Module, number: int, field: str, value: object) -> ast.Module:
    copied = copy.deepcopy(tree)
    node = next(each for place, each in enumerate(ast.walk(copied)) if place == number)
    setattr(node, field, value)
    return ast.fix_missing_locations(copied)


def notices(module: ModuleType, tree: ast.Module) -> bool:
    """Does any case of the module's rules come out otherwise?"""
    namespace = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(tree, str(module.__file__), "exec"), namespace)
    for rule, check in CHECKS.items():
        if check.__module__ != module.__name__:
            continue
        for wanted, found in zip((True, False), CASES[rule], strict=True):
            for source in found:
                assert source.tree is not None
                try:
                    hits = list(namespace[check.__name__](Code(source.tree, list(source.lines))))  # type: ignore[operator]
                except Exception:  # noqa: BLE001 - a crash is noticed
                    return True
                if bool(hits) is not wanted:
                    return True
    return False


def main() -> None:
    """Print what nobody notices."""
    total = unnoticed = 0
    for name in dict.fromkeys(check.__module__ for check in CHECKS.values()):
        module = importlib.import_module(name)
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        for line, what, changed in broken(tree):
            total += 1
            if not notices(module, changed):
                unnoticed += 1
                sys.stdout.write(f"{name}:{line}: {what}\n")
    sys.stdout.write(f"{total - unnoticed} of {total} changes noticed\n")


if __name__ == "__main__":
    main()
