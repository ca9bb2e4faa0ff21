"""How deep a configuration's model is, and the same configuration with fewer blocks."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memplan.job.source import Depth, ModelSource

_FIELDS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers",
)  # fmt: skip
"""Names of depths in transformers' configurations (``configuration_*.py``); others are mapped to them by
``attribute_map``."""


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
