"""What a class or function needs to be called, and how that is typed as a target."""

import dataclasses
import enum
import inspect
import shlex
from types import ModuleType
from typing import Any

from memplan.job.places import file_of

_USUAL: tuple[tuple[tuple[str, ...], object], ...] = (
    (("vocab", "num_tokens", "n_tokens", "num_embeddings"), 32000),
    (("num_classes", "n_classes", "classes", "num_class"), 1000),
    (("image_size", "img_size", "resolution", "input_size"), 224),
    (("patch",), 16),
    (("in_ch", "n_channels", "num_channels", "channels", "in_chans"), 3),
    (("out_ch",), 64),
    (("ctx", "seq", "block_size", "max_len", "context", "length", "position"), 1024),
    (("mel",), 80),
    (("head",), 8),
    (("layer", "depth", "block"), 6),
    (("dropout", "drop", "prob", "rate", "eps"), 0.1),
    (("mlp", "ff", "inner"), 2048),
    (("dim", "width", "hidden", "state", "embed", "d_model", "size", "feature"), 512),
    (("kernel",), 3),
    (("num", "n_", "k"), 8),
)
"""Parts of names → what people often give: no more than an example to be changed."""
_OF_TYPE: dict[object, object] = {int: 64, float: 0.1, bool: False, str: "", "int": 64, "float": 0.1, "bool": False}
_CONFIG = ("config", "args", "cfg", "conf", "params", "hparams", "opt", "dims")
_DEEPEST = 3


def listed(function: Any) -> str:
    """The parameters of a function, one a line: name, annotation, default."""
    return "".join(f"\n    {_told(each)}" for each in _parameters(function))


def typed(name: str, function: Any, module: ModuleType) -> str:
    """A command that names a model by a call with all arguments that it needs."""
    target = shlex.quote(f"{file_of(module)}:{_call(name, function, module, 0)}")
    return f"memplan estimate {target}  (values are examples)"


def _told(parameter: inspect.Parameter) -> str:
    stars = ((parameter.VAR_POSITIONAL, "*"), (parameter.VAR_KEYWORD, "**"))
    star = next((star for kind, star in stars if parameter.kind is kind), "")
    kind = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    default = ", needed" if parameter.default is parameter.empty and not star else f" = {parameter.default!r}"
    return f"{star}{parameter.name}{kind}{'' if star else default}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _call(name: str, function: Any, module: ModuleType, depth: int) -> str:
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each for each in _parameters(function) if each.default is each.empty and each.kind not in stars]
    given = [(each, _value(each, module, depth)) for each in needed]
    by_place = inspect.Parameter.POSITIONAL_ONLY
    return f"{name}({', '.join(value if each.kind is by_place else f'{each.name}={value}' for each, value in given)})"


def _value(parameter: inspect.Parameter, module: ModuleType, depth: int) -> str:
    kind = _class_of(parameter, module)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{next(iter(kind.__members__))}"
    if kind is not None and depth < _DEEPEST:
        return _call(kind.__name__, kind, module, depth + 1)
    usual = next((value for parts, value in _USUAL if any(part in parameter.name.lower() for part in parts)), None)
    if usual is None and any(part in parameter.name.lower() for part in _CONFIG):
        return "package.module:Config()"
    kind = parameter.annotation
    known = _OF_TYPE.get(kind) if isinstance(kind, type | str) else None
    if usual is not None and (known is None or (isinstance(usual, int) and isinstance(known, int))):
        return repr(usual)
    return repr(64 if known is None else known)


def _class_of(parameter: inspect.Parameter, module: ModuleType) -> Any:
    """The class that a parameter wants: by its annotation, else the module's one configuration."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = getattr(module, annotation, None)
    if isinstance(annotation, type) and getattr(module, annotation.__name__, None) is annotation:
        return annotation
    if parameter.annotation is parameter.empty and any(part in parameter.name.lower() for part in _CONFIG):
        classes = [each for each in vars(module).values() if _is_configuration(each, module)]
        return classes[0] if len(classes) == 1 else None
    return None


def _is_configuration(value: Any, module: ModuleType) -> bool:
    return (
        isinstance(value, type)
        and value.__module__ == module.__name__
        and (dataclasses.is_dataclass(value) or any(part in value.__name__.lower() for part in _CONFIG))
    )
