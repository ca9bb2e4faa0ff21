"""How deep a configuration's model is, and the same configuration with fewer blocks."""

import copy
from collections.abc import Callable, Sequence
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
    blocks = max((fields[name] for name in _FIELDS if type(fields.get(name)) is int), default=0)
    if not blocks or any(hasattr(value, "to_dict") for value in fields.values()):
        return None
    changed = {name: value for name, value in fields.items() if name in _FIELDS and value == blocks}
    kinds = {name: value for name, value in fields.items() if isinstance(value, list | tuple) and len(value) == blocks}

    def at(count: int) -> ModelSource:
        made = copy.deepcopy(config)
        vars(made).update(dict.fromkeys(changed, count) | {name: value[:count] for name, value in kinds.items()})
        return source(made)

    return Depth(blocks=blocks, period=_period(list(kinds.values()), blocks), at=at)


def _period(lists: Sequence[Sequence[Any]], blocks: int) -> int:
    """The least distance at which all lists have the same again; the number of blocks where there is none."""
    return next(
        period for period in range(1, blocks + 1) if all(each[period:] == each[: blocks - period] for each in lists)
    )
