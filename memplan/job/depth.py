"""How deep a configuration's model is; the same configuration with fewer blocks, or at half its width or experts."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memplan.errors import UsageError
from memplan.job.source import Depth, ModelSource
from memplan.job.spec import Halved

_FIELDS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers",
)  # fmt: skip
"""Names of depths in transformers' configurations (``configuration_*.py``); others are mapped to them by
``attribute_map``."""
_WIDTHS = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "num_heads")
_INNER = ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "moe_intermediate_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Names in transformers' configurations (``configuration_*.py``); others are mapped to them by ``attribute_map``."""
_CHOSEN = ("num_experts_per_tok", "num_selected_experts")
_GROUPS = "num_key_value_heads"


def depth_of(config: Any, source: Callable[[Any], ModelSource]) -> Depth | None:
    """Return how deep a model is; None where its configuration does not say, or has others in it."""
    fields = vars(config)
    blocks = _blocks(fields)
    if not blocks:
        return None
    kinds = [value for value in block_fields(fields, lambda count: count).values() if not isinstance(value, int)]

    def at(count: int) -> ModelSource:
        made = copy.deepcopy(config)
        vars(made).update(block_fields(fields, lambda _: count))
        return source(made)

    return Depth(blocks=blocks, period=_period(kinds, blocks), at=at)


def block_fields(fields: Mapping[str, Any], count: Callable[[int], int]) -> dict[str, Any]:
    """Return what a configuration says of its blocks, for another number of them.

    ``count`` makes of the number of blocks another, which is not larger. Nothing where the configuration does not say
    how many there are, or has others in it.
    """
    blocks = _blocks(fields)
    wanted = count(blocks) if blocks else 0
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if blocks and name in _FIELDS and value == blocks:
            found[name] = wanted
        elif blocks and isinstance(value, list | tuple) and len(value) == blocks:
            found[name] = value[:wanted]
    return found


def _blocks(fields: Mapping[str, Any]) -> int:
    if any(hasattr(value, "to_dict") for value in fields.values()):
        return 0
    return max((fields[name] for name in _FIELDS if type(fields.get(name)) is int), default=0)


def _period(lists: Sequence[Sequence[Any]], blocks: int) -> int:
    """The least distance at which all lists have the same again; the number of blocks where there is none."""
    return next(
        period for period in range(1, blocks + 1) if all(each[period:] == each[: blocks - period] for each in lists)
    )


def halved(config: Any, what: Halved) -> tuple[Any, str]:
    """Return a transformers configuration with half of something, and what that is in words.

    A width is halved with its heads, which keep their size, and with the width between the layers of a block.

    Raises:
        UsageError: The configuration does not say how many there are, or not an even number.
    """
    fields = getattr(config, "__dict__", {})
    changed = block_fields(fields, _half) if what == "layers" else _smaller(fields, what)
    first = next((name for name, value in changed.items() if type(value) is int), None)
    if first is None:
        raise UsageError(f"the configuration does not say how many {what} there are")
    made = copy.deepcopy(config)
    vars(made).update(changed)
    return made, f"half the {what}: {first} {changed[first]}"


def _smaller(fields: dict[str, Any], what: Halved) -> dict[str, int]:
    if what == "experts":
        changed = _halves(fields, _EXPERTS)
        least = min(changed.values(), default=0)
        return changed | {name: least for name in _CHOSEN if least and fields.get(name, 0) > least}
    changed = _halves(fields, _WIDTHS)
    if not changed:
        return {}
    groups = _halves(fields, (_GROUPS,)) if fields.get(_GROUPS, 1) != 1 else {}
    return changed | _halves(fields, _HEADS) | groups | _halves(fields, _INNER)


def _halves(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, int]:
    return {name: _half(fields[name]) for name in names if type(fields.get(name)) is int and fields[name] > 0}


def _half(count: int) -> int:
    if count % 2:
        raise UsageError(f"{count} cannot be halved")
    return count // 2
