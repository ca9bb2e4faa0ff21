"""Which object of a Python module is the model, and how it is built."""

import ast
import difflib
import inspect
import typing
from functools import partial
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from memplan.errors import EstimateError, UsageError
from memplan.files.syntax import parse_source
from memplan.job.call import Name, parse_call, resolve
from memplan.job.example_call import listed, typed
from memplan.job.places import file_of, place
from memplan.job.signatures import EXPECTED, accepts
from memplan.job.usercode import user_code

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_MOST_SHOWN = 3
_EXAMPLE = "define  def model(): return Net(...)  in the file, or name the factory: model.py:factory"


def model_call(module: ModuleType, factory: str | None) -> Name:
    """What gives the model of a module: what was asked for, ``model``, or the only candidate.

    A candidate is a public ``nn.Module`` instance with parameters, a function annotated to return an ``nn.Module``, or
    an ``nn.Module`` subclass defined here; functions and classes only where they need no arguments.

    Raises:
        UsageError: There is no such name, no candidate, or more than one.
    """
    file = file_of(module)
    if factory is not None:
        return _checked(module, parse_call(factory))
    if hasattr(module, "model"):
        return _checked(module, Name(path=("model",)))
    match _candidates(module):
        case [only]:
            return Name(path=(only,))
        case []:
            hint = "\n".join(needy) if (needy := _needy(module)) else _EXAMPLE
            raise UsageError(f"{file} has no model that needs no arguments" if needy else f"{file} has no model",
                             where=file, hint=hint)  # fmt: skip
        case several:
            what = f"{file} has several candidates for the model: {', '.join(several)}"
            raise UsageError(what, where=file, hint=f"name one: {file}:{several[-1]}")


def model_builder(module: ModuleType, call: Name) -> "Callable[[], torch.nn.Module]":
    """A function that builds the model by that name or call.

    A ready instance was made when its module was imported, perhaps of real memory; its builder runs the module once
    more, so that under fake tensors a fake one comes out, and the first is freed.

    Raises:
        EstimateError: When called: the user's code raises, or returns something else than a module.
    """
    import torch

    found: Any = getattr(module, str(call))
    if isinstance(found, torch.nn.Module):
        # The builder holds the name alone: it must not keep the first instance alive.
        return partial(_built, partial(_rebuilt, module, str(call)), file_of(module), file_of(module))
    make = partial(resolve, call, module) if call.is_called else found
    return partial(_built, make, f"{call}()", file_of(module))


def _built(make: "Callable[[], object]", doing: str, file: str) -> "torch.nn.Module":
    import torch

    with user_code(doing):
        built = make()
    if not isinstance(built, torch.nn.Module):
        raise EstimateError(f"{doing} returned {_article(type(built).__name__)}, not a torch.nn.Module", where=file)
    return built


def _checked(module: ModuleType, call: Name) -> Name:
    """The call, if the module has what it names and that takes its arguments (or is an instance)."""
    import torch

    file, name = file_of(module), str(call)
    if not hasattr(module, name):
        nearest = difflib.get_close_matches(name, _callables(module)) or _candidates(module)
        hint = "did you mean " + " or ".join(nearest) + "?" if nearest else _EXAMPLE
        raise UsageError(f"{file} has no '{name}'", where=file, hint=hint)
    found: Any = getattr(module, name)
    if isinstance(found, torch.nn.Module) and not call.is_called:
        return call
    if not callable(found):
        kind = _article(type(found).__name__)
        raise UsageError(f"'{name}' in {file} is {kind}, not a function or model", where=file, hint=_EXAMPLE)
    if not accepts(found, *call.arguments, **call.keywords):
        given = "with these arguments" if call.arguments or call.keywords else "without arguments"
        what = f"{name}{inspect.signature(found)} cannot be called {given}{listed(found)}"
        raise UsageError(what, where=place(module, name), hint=typed(name, found, module))
    return call


def _needy(module: ModuleType) -> list[str]:
    """How the module's models that need arguments are typed; those that others of them are made of come first."""
    own = {name: value for name, value in _public(module).items() if _is_own_model_class(value, module)}
    parts = _parts(module)
    return [typed(name, value, module) for name, value in own.items() if name not in parts][-_MOST_SHOWN:]


def _parts(module: ModuleType) -> set[str]:
    """Names that stand in a class of the module's other than their own: what it is made of."""
    try:
        body = parse_source(inspect.getsource(module)).body
    except (OSError, TypeError, SyntaxError):
        return set()
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    inside = ((each.name, node) for each in classes for node in ast.walk(each))
    return {node.id for owner, node in inside if isinstance(node, ast.Name) and node.id != owner}


def _candidates(module: ModuleType) -> list[str]:
    """Names that could be the model; a class that another candidate returns or instantiates is not a second one."""
    public = _public(module)
    made = {name: kind for name, value in public.items() if (kind := _made_by(value, module)) is not None}
    parts = _parts(module)
    classes = [name for name, value in public.items() if _is_own_model_class(value, module) and accepts(value)]
    classes = [name for name in classes if name not in parts] or classes
    return [*made, *(name for name in classes if not any(_makes(public[by], made[by], public[name]) for by in made))]


def _makes(maker: object, kind: type, model_class: type) -> bool:
    """Does this instance or function, which gives a ``kind``, stand for the class? A function may return a subclass."""
    return model_class is kind or (isinstance(maker, FunctionType) and issubclass(model_class, kind))


def _made_by(value: Any, module: ModuleType) -> type | None:
    """The class of the model that this instance is, or that this function says it returns."""
    import torch

    if isinstance(value, torch.nn.Module) and any(True for _ in value.parameters()):
        return type(value)
    if not isinstance(value, FunctionType) or value.__module__ != module.__name__ or not accepts(value):
        return None
    try:
        returned = typing.get_type_hints(value).get("return")
    except (NameError, AttributeError, TypeError, SyntaxError):
        # An annotation that only a type checker can evaluate says nothing here.
        return None
    return returned if isinstance(returned, type) and issubclass(returned, torch.nn.Module) else None


def _is_own_model_class(value: Any, module: ModuleType) -> bool:
    import torch

    return isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__


def _public(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("_") and name not in EXPECTED}


def _callables(module: ModuleType) -> list[str]:
    return [name for name, value in _public(module).items() if callable(value)]


def _rebuilt(module: ModuleType, name: str) -> object:
    """The instance of that name after running its module once more, in place: only one instance is alive at a time."""
    assert module.__spec__ is not None and module.__spec__.loader is not None  # noqa: S101, PT018 - import sets both.
    delattr(module, name)
    module.__spec__.loader.exec_module(module)
    return getattr(module, name)


def _article(kind: str) -> str:
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
