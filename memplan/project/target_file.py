"""A target file made from a training script's own code, for scripts that cannot be run as they are.

What the script says of its model, optimizer and loss is copied from its syntax tree; names that only the running
script knows (its arguments, its data) are marked to be completed.
"""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memplan.errors import UsageError
from memplan.files.read import read_bytes
from memplan.files.syntax import parse_source

_MOVES = ("to", "cuda", "cpu", "train", "eval", "half", "bfloat16", "float")
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "DDP", "compile")
_COMPLETE = "# complete: "


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a script says."""

    model: ast.Call
    """The call that builds the model."""
    optimizer: ast.Call
    """The call that makes the optimizer."""
    loss: ast.expr | None
    """What the loss is."""


def target_file(path: Path) -> str:
    """Return the text of a target file.

    Raises:
        UsageError: It is no Python, or makes no optimizer of a model's parameters.
    """
    try:
        tree = parse_source(read_bytes(path))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is not valid Python: {error}") from error
    defaults = _argument_defaults(tree)
    tree = ast.parse(ast.unparse(_Defaults(defaults, _given(tree)).visit(tree)))
    found = _found(tree, path)
    optimizer = _replaced(found.optimizer, {}, parameters=True)
    parts = [
        f'"""The step of {path.name}, for memplan, to lie beside it: what is marked is to be completed."""\n',
        *_imports(tree, path, found),
        "\n\ndef model():",
        *_marks(found.model, tree),
        f"    return {ast.unparse(found.model)}",
        "\n\ndef optimizer(parameters):",
        *_marks(optimizer, tree),
        f"    return {ast.unparse(optimizer)}",
        *_loss(found.loss, tree),
        "\n\n# def batch(batch_size):",
        f"#     {_COMPLETE}without it memplan works the input out from the model",
        "#     return torch.randn(batch_size, 3, 224, 224), torch.randint(1000, (batch_size,))",
    ]
    return "\n".join(parts) + "\n"


def _found(tree: ast.Module, path: Path) -> _Found:
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _learner(node) is not None]
    values = _assigned(tree)
    for optimizer in made:
        name = _learner(optimizer)
        models = [call for value in values.get(name or "", ()) if (call := _built(value)) is not None]
        if models:
            losses = [node.func.value.id for node in ast.walk(tree) if _goes_back(node)]  # type: ignore[attr-defined]
            loss = next((value for each in losses for value in values.get(each, ())), None)
            return _Found(model=models[0], optimizer=optimizer, loss=loss)
    raise UsageError(
        f"{path} makes no optimizer of a model's parameters that could be copied",
        hint="write model() and batch() yourself: docs/targets.md",
    )


def _learner(call: ast.Call) -> str | None:
    """``net`` of ``SGD(net.parameters(), lr=0.1)``."""
    first = call.args[0] if call.args else None
    match first:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="parameters")):
            return name
        case _:
            return None


def _goes_back(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="backward")):
            return True
        case _:
            return False


def _assigned(tree: ast.Module) -> dict[str, list[ast.expr]]:
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return values


def _built(value: ast.expr) -> ast.Call | None:
    """The call that builds the model, without what moves or wraps it."""
    while isinstance(value, ast.Call):
        match value.func:
            case ast.Attribute(value=inner, attr=name) if name in _MOVES and isinstance(inner, ast.Call):
                value = inner
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in (*_WRAPPERS, *_MOVES):
                return None
            case _:
                return value
    return None


def _imports(tree: ast.Module, path: Path, found: _Found) -> Iterator[str]:
    """Imports that the copied code needs, from where the script has them or from itself."""
    yield "import torch"
    loss = [found.loss] if found.loss is not None else []
    used = {name for node in (found.model, found.optimizer, *loss) for name in _names(node)} | {"nn", "F"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            if names & used - {"torch"}:
                yield ast.unparse(node)
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)} & used
    if own:
        yield f"from {path.stem} import {', '.join(sorted(own))}"


def _marks(node: ast.expr, tree: ast.Module) -> Iterator[str]:
    """A line for the names that only the running script knows."""
    unknown = sorted(_names(node) - _given(tree) - {"parameters", "output", "batch", *vars(builtins)})
    if unknown:
        yield f"    {_COMPLETE}{', '.join(unknown)}"


def _given(tree: ast.Module) -> set[str]:
    """Names that the module itself has: imported, or classes and functions."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    given = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    return given | {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _argument_defaults(tree: ast.Module) -> dict[str, ast.Constant]:
    """``lr`` of ``add_argument("--lr", default=0.1)``: what the script takes where nobody says."""
    defaults: dict[str, ast.Constant] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names, keywords=keywords):
                given = {each.arg: each.value for each in keywords}
                flags = [name.value for name in names if isinstance(name, ast.Constant)]
                named = next((flag for flag in flags if str(flag).startswith("--")), flags[0] if flags else "")
                dest = given.get("dest", ast.Constant(str(named).lstrip("-").replace("-", "_")))
                default = given.get("default", ast.Constant(False) if "action" in given else None)
                if isinstance(default, ast.Constant) and default.value is not None and isinstance(dest, ast.Constant):
                    defaults[str(dest.value)] = default
            case _:
                continue
    return defaults


class _Defaults(ast.NodeTransformer):
    """Puts defaults in the place of ``args.lr``."""

    def __init__(self, defaults: dict[str, ast.Constant], given: set[str]) -> None:
        self._defaults, self._given = defaults, given

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A default, where the name is none of a module."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr, ctx=ast.Load()) if name not in self._given:
                return self._defaults.get(attr, node)
            case _:
                self.generic_visit(node)
                return node


def _names(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _loss(loss: ast.expr | None, tree: ast.Module) -> Iterator[str]:
    """``loss(output, batch)`` of a call with an output and labels; a comment of anything else."""
    match loss:
        case ast.Call(func=func, args=[_, _], keywords=keywords):
            call: ast.expr = ast.Call(
                func=func, args=[ast.Name("output"), ast.parse("batch[1]", mode="eval").body], keywords=keywords
            )
            criterion = _assigned(tree).get(func.id, ()) if isinstance(func, ast.Name) else ()
            made = next((_built(value) for value in criterion), None)
            call = _replaced(call, {func.id: made}) if made is not None and isinstance(func, ast.Name) else call
            yield "\n\n# def loss(output, batch):"
            yield f"#     {_COMPLETE}batch[1] are the labels that batch() returns"
            yield f"#     return {ast.unparse(call)}"
        case None:
            return
        case _:
            yield f"\n\n{_COMPLETE}def loss(output, batch), which the script computes as\n#     {ast.unparse(loss)}"


def _replaced(node: ast.expr, names: dict[str, ast.expr], *, parameters: bool = False) -> ast.expr:
    """A copy with names, and ``net.parameters()``, replaced."""

    class Replace(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return names.get(name.id, name)

        def visit_Call(self, call: ast.Call) -> ast.expr:
            if parameters and isinstance(call.func, ast.Attribute) and call.func.attr == "parameters":
                return ast.Name("parameters")
            self.generic_visit(call)
            return call

    copied = ast.parse(ast.unparse(node), mode="eval").body
    result: ast.expr = Replace().visit(copied)
    return result
