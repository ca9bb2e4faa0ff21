"""A configuration's model at half its layers, its width or its experts: what a smaller model would take."""

import copy
from typing import Any

from memplan.errors import UsageError
from memplan.job.depth import block_fields
from memplan.job.spec import Halved

_WIDTHS = ("hidden_size", "n_embd", "d_model")
_HEADS = ("num_attention_heads", "n_head", "num_heads")
_INNER = ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "moe_intermediate_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Names in transformers' configurations (``configuration_*.py``); others are mapped to them by ``attribute_map``."""
_CHOSEN = ("num_experts_per_tok", "num_selected_experts")
_GROUPS = "num_key_value_heads"


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
