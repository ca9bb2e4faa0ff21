"""Blocks: found in a module tree, named by patterns, and recognised again."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.records import BlockFingerprint, Fingerprint

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_MOST_NAMES = 10
"""Names that an error lists."""
_HASH_DIGITS = 16
"""64 bits tell apart what a person may confuse."""


def bare(model: nn.Module) -> nn.Module:
    """The model inside ``DistributedDataParallel``, whose names a plan uses."""
    while isinstance(model, DistributedDataParallel):
        model = model.module
    return model


def repeated_blocks(model: nn.Module) -> tuple[str, ...]:
    """Names of the outermost repeated blocks, in order.

    A block is a module with children of its own; it repeats if its ``ModuleList``, ``ModuleDict`` or ``Sequential``
    holds another of its class. Blocks inside blocks are left alone.
    """
    return tuple(_repeated(model, ""))


def modules_named(model: nn.Module, patterns: Sequence[str]) -> dict[str, nn.Module]:
    """Modules by name or pattern.

    Args:
        model: The model.
        patterns: Qualified names, in which ``*``, ``?`` and ``[…]`` stand for parts of one component
            (``encoder.*.mlp``).

    Returns:
        The modules in the patterns' order, each pattern's in the model's; each name once.

    Raises:
        PlanMismatch: A pattern finds nothing, or only what is never called itself.
    """
    modules = {name: module for name, module in model.named_modules(remove_duplicate=False) if name}
    found = {pattern: [name for name in modules if _matches(name, pattern)] for pattern in patterns}
    unknown = [pattern for pattern, names in found.items() if not names]
    if unknown:
        raise PlanMismatch(f"{type(model).__name__} has no module {listed(unknown)}", hint=_near(unknown, modules))
    called = {pattern: [name for name in names if is_called(modules[name])] for pattern, names in found.items()}
    uncalled = [pattern for pattern, names in called.items() if not names]
    if uncalled:
        inside = [name for name in modules if name.startswith(f"{found[uncalled[0]][0]}.")]
        raise PlanMismatch(
            f"{listed(uncalled)} only holds modules and is never called", hint="name what it holds: " + listed(inside)
        )
    return {name: modules[name] for names in called.values() for name in names}


def is_called(module: nn.Module) -> bool:
    """Has it a ``forward`` of its own? ``nn.ModuleList`` and ``nn.ModuleDict`` have none."""
    return type(module).forward is not nn.Module.forward


def fingerprint(model: nn.Module, blocks: Sequence[str]) -> Fingerprint:
    """What a plan for these blocks remembers of a model, sharded by ``fully_shard`` or not."""
    modules = modules_named(bare(model), blocks) if blocks else {}
    each = tuple(
        BlockFingerprint(module=name, parameters=_count(module), structure=_hash(_structure(module)))
        for name, module in modules.items()
    )
    return Fingerprint(
        model=_class_name(bare(model)),
        parameters=_count(model),
        blocks=_hash(f"{block.module} {block.structure}" for block in each),
        each=each,
    )


def check_fingerprint(model: nn.Module, planned: Fingerprint) -> None:
    """Is it the model that the plan was made for?

    Raises:
        PlanMismatch: It is not; says which module differs and in what.
    """
    present = fingerprint(model, [block.module for block in planned.each])
    differences = [
        f"{was.module}: {_difference(was, found)}"
        for was, found in zip(planned.each, present.each, strict=True)
        if was != found
    ]
    if present.model != planned.model:
        differences.insert(0, f"it is a {present.model}, the plan was made for a {planned.model}")
    if present.parameters != planned.parameters:
        differences.insert(0, f"it has {present.parameters:,} parameters, the plan was made for {planned.parameters:,}")
    if differences:
        raise PlanMismatch(
            f"the plan was made for another model: {'; '.join(differences[:_MOST_NAMES])}",
            hint="make the plan anew, before any wrapper that changes parameters",
        )


def contents(model: nn.Module) -> Iterator[str]:
    """What the containers of a model hold: ``layers: 3 Linear, 1 ReLU``."""
    for name, module in model.named_modules():
        if isinstance(module, _CONTAINERS):
            kinds = Counter(type(child).__name__ for child in module.children())
            held = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            yield f"{name or type(module).__name__}: {held or 'nothing'}"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _repeated(module: nn.Module, name: str) -> Iterator[str]:
    blocks = _blocks(module) if isinstance(module, _CONTAINERS) else set()
    for key, child in module.named_children():
        path = f"{name}.{key}" if name else key
        if key in blocks:
            yield path
        else:
            yield from _repeated(child, path)


def _blocks(container: nn.Module) -> set[str]:
    """Keys of the children that are blocks and repeat."""
    candidates = {key: child for key, child in container.named_children() if _is_block(child)}
    kinds = Counter(type(child) for child in candidates.values())
    return {key for key, child in candidates.items() if kinds[type(child)] > 1}


def _is_block(module: nn.Module) -> bool:
    if not is_called(module) or next(module.children(), None) is None:
        return False
    # A stage made of blocks (nn.Sequential of residual blocks) is no block itself.
    return not isinstance(module, nn.Sequential) or next(_repeated(module, ""), None) is None


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _near(unknown: Sequence[str], modules: Mapping[str, nn.Module]) -> str:
    near = [match for name in unknown for match in get_close_matches(name, modules, n=3)]
    return f"did you mean {listed(near)}?" if near else f"it has {listed(list(modules))}"


def _structure(block: nn.Module) -> Iterator[str]:
    """Names, classes and parameter shapes of a block's modules; nothing that depends on where it stands."""
    for name, module in block.named_modules():
        yield f"{name} {_class_name(module)}"
        for key, parameter in module.named_parameters(recurse=False):
            yield f"{name}.{key} {tuple(parameter.shape)}"


def _class_name(module: nn.Module) -> str:
    # ``fully_shard`` gives a module a class of its own, derived from the module's.
    kinds = (kind for kind in type(module).__mro__ if not kind.__module__.startswith("torch.distributed"))
    return next(kinds, nn.Module).__qualname__


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _hash(lines: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_HASH_DIGITS]


def _difference(was: BlockFingerprint, found: BlockFingerprint) -> str:
    if was.parameters != found.parameters:
        return f"{found.parameters:,} parameters, planned {was.parameters:,}"
    return "other modules or shapes of parameters than planned"
