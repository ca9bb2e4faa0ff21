"""``--checkpoint``: activation checkpointing put on a model from outside, as a training script would write it.

Each chosen module's ``forward`` runs under ``torch.utils.checkpoint``: backward finds its inputs alone and runs it
again. Models of transformers and diffusers have a switch of their own for this, which loading them has already turned.
"""

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from memplan.errors import UsageError

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
# transformers 5 (modeling_utils.py) warns at its old name, which diffusers (modeling_utils.py) still uses.
_OWN_SWITCHES = ("is_activation_checkpointing", "is_gradient_checkpointing")
_MOST_NAMES = 10
"""Names that an error lists."""

Recomputing = Callable[[nn.Module], AbstractContextManager[Any]]
"""Module → context of its second run, the one in backward."""


def apply_checkpointing(model: nn.Module, choice: str, recomputing: Recomputing = nullcontext) -> tuple[str, ...]:
    """Put ``--checkpoint full`` or a plan file into force.

    Args:
        model: The model; changed in place, unless it already does its own checkpointing of every block.
        choice: ``full`` or the path of a plan file.
        recomputing: Context of each recomputation.

    Returns:
        Names of the modules wrapped; empty where the model's own switch is on.

    Raises:
        UsageError: There is nothing to checkpoint, or the plan does not fit the model.
    """
    if choice != "full":
        return checkpoint_modules(model, read_plan(Path(choice)), recomputing)
    if next((getattr(model, switch) for switch in _OWN_SWITCHES if hasattr(model, switch)), False):
        return ()
    return checkpoint_blocks(model, recomputing)


def checkpoint_blocks(model: nn.Module, recomputing: Recomputing = nullcontext) -> tuple[str, ...]:
    """Checkpoint every repeated block of a model.

    A block is a module with children of its own; it repeats if its ``ModuleList``, ``ModuleDict`` or ``Sequential``
    holds another of its class. Blocks inside blocks are left alone.

    Args:
        model: The model, changed in place.
        recomputing: Context of each recomputation.

    Returns:
        The blocks' names, in order.

    Raises:
        UsageError: No block repeats.
    """
    names = tuple(_repeated(model, ""))
    if not names:
        seen = "; ".join(_contents(model)) or "the model has no ModuleList, ModuleDict or Sequential"
        raise UsageError(
            f"{type(model).__name__} has no repeated blocks to checkpoint",
            where="--checkpoint full",
            hint=f'name the modules in a plan file, {{"modules": ["..."]}} ({seen})',
        )
    return checkpoint_modules(model, names, recomputing)


def checkpoint_modules(
    model: nn.Module, names: Sequence[str], recomputing: Recomputing = nullcontext
) -> tuple[str, ...]:
    """Checkpoint exactly these modules.

    Args:
        model: The model, changed in place.
        names: Their qualified names (``layers.0``).
        recomputing: Context of each recomputation.

    Returns:
        The names, each once.

    Raises:
        UsageError: The model has no such module, or it is a list of modules and is never called itself.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    chosen = tuple(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in modules]
    if unknown:
        raise UsageError(
            f"{type(model).__name__} has no module {_listed(unknown)}",
            where="--checkpoint",
            hint=_near(unknown, modules),
        )
    uncalled = [name for name in chosen if not _is_called(modules[name])]
    if uncalled:
        hint = "name what it holds: " + _listed([name for name in modules if name.startswith(f"{uncalled[0]}.")])
        raise UsageError(f"{_listed(uncalled)} only holds modules and is never called", where="--checkpoint", hint=hint)
    # A module that has two names is one module, wrapped once.
    for module in {id(modules[name]): modules[name] for name in chosen}.values():
        _wrap(module, recomputing)
    return chosen


def read_plan(path: Path) -> tuple[str, ...]:
    """Module names of a plan file: JSON, ``{"modules": ["layers.0", …]}``; other keys are left to other readers.

    Raises:
        UsageError: The file cannot be read, or says something else.
    """
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the plan cannot be read: {error}", where=str(path)) from error
    names = plan.get("modules") if isinstance(plan, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            "the plan names no modules", where=str(path), hint='write {"modules": ["layers.0", "layers.1"]}'
        )
    return tuple(names)


def described(names: Sequence[str]) -> str:
    """A sentence for the report: how many modules are checkpointed, and which."""
    if not names:
        return "activation checkpointing of every block, by the model's own switch"
    ends = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    return f"activation checkpointing of {len(names)} block{'s' if len(names) > 1 else ''}: {ends}"


def _wrap(module: nn.Module, recomputing: Recomputing) -> None:
    forward = module.forward

    def contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return nullcontext(), recomputing(module)

    @functools.wraps(forward)
    def checkpointed(*args: Any, **keywords: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **keywords)

    module.forward = checkpointed


def _repeated(module: nn.Module, name: str) -> Iterator[str]:
    """Names of the outermost repeated blocks below a module."""
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
    if not _is_called(module) or next(module.children(), None) is None:
        return False
    # A stage made of blocks (nn.Sequential of residual blocks) is no block itself.
    return not isinstance(module, nn.Sequential) or next(_repeated(module, ""), None) is None


def _is_called(module: nn.Module) -> bool:
    """Has it a ``forward`` of its own? ``nn.ModuleList`` and ``nn.ModuleDict`` have none."""
    return type(module).forward is not nn.Module.forward


def _contents(model: nn.Module) -> Iterator[str]:
    """What the containers of a model hold: ``layers: 3 Linear, 1 ReLU``."""
    for name, module in model.named_modules():
        if isinstance(module, _CONTAINERS):
            kinds = Counter(type(child).__name__ for child in module.children())
            held = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            yield f"{name or type(module).__name__}: {held or 'nothing'}"


def _near(unknown: Sequence[str], modules: Mapping[str, nn.Module]) -> str:
    near = [match for name in unknown for match in get_close_matches(name, modules, n=3)]
    return f"did you mean {_listed(near)}?" if near else f"it has {_listed([name for name in modules if name])}"


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
