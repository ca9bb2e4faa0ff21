"""The modules of a model that a plan may run again: what repeats, what stands alone beside it, or what there is."""

from collections.abc import Iterator

from torch import nn

from memplan.runtime.checkpoint.blocks import is_called, listed, repeated_blocks


def plannable_blocks(model: nn.Module) -> tuple[str, ...]:
    """Names of the modules to plan, none inside another.

    Those are the repeated blocks, and beside them modules that are made of others and learn (a bottleneck between two
    rows of blocks), and recurrent layers. Where nothing repeats and that gives no more than one, what the one or the
    model holds is planned.
    """
    repeated = repeated_blocks(model)
    found = tuple(_outermost(model, "", repeated))
    if repeated or len(found) > 1:
        return found
    if not found or isinstance(model.get_submodule(found[0]), nn.RNNBase):
        return tuple(_called(model, ""))
    [name] = found
    inside = tuple(_outermost(model.get_submodule(name), name, ()))
    return inside if len(inside) > 1 else tuple(_called(model.get_submodule(name), name)) or found


def existing_modules(model: nn.Module) -> str:
    """What to do where there is nothing to plan: the names that there are."""
    names = [name for name, module in model.named_modules() if name and is_called(module)]
    return f"name some: --blocks NAME, of {listed(names)}" if names else "the model holds no modules: write it as some"


def _outermost(module: nn.Module, name: str, repeated: tuple[str, ...]) -> Iterator[str]:
    """Repeated blocks, and the outermost others that are made of modules, or are recurrent layers, and learn."""
    for key, child in module.named_children():
        path = f"{name}.{key}" if name else key
        holds_repeated = any(block.startswith(f"{path}.") for block in repeated)
        if path in repeated:
            yield path
        elif holds_repeated or not is_called(child):
            yield from _outermost(child, path, repeated)
        elif _learns(child) and (isinstance(child, nn.RNNBase) or next(child.children(), None) is not None):
            yield path


def _called(module: nn.Module, name: str) -> Iterator[str]:
    """The children of a module that run again safely: those that change their input in place do not."""
    for key, child in module.named_children():
        path = f"{name}.{key}" if name else key
        if not is_called(child):
            yield from _called(child, path)
        elif not getattr(child, "inplace", False):
            yield path


def _learns(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())
