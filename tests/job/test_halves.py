"""Half of a configuration's layers, width or experts: parameters counted by hand, and what has no half."""

import pytest

from memplan.errors import UsageError
from memplan.job.depth import halved

transformers = pytest.importorskip("transformers")


def test_half_the_layers_cuts_the_lists_of_their_kinds_too() -> None:
    config = transformers.Qwen3Config(num_hidden_layers=4, layer_types=["full_attention"] * 4)
    made, said = halved(config, "layers")
    assert (made.num_hidden_layers, len(made.layer_types), config.num_hidden_layers) == (2, 2, 4)
    assert said == "half the layers: num_hidden_layers 2"


def test_half_the_width_keeps_the_size_of_heads() -> None:
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2
    )
    made, _ = halved(config, "hidden")
    assert (made.hidden_size, made.intermediate_size) == (32, 64)
    assert (made.num_attention_heads, made.num_key_value_heads) == (2, 1)
    assert made.hidden_size // made.num_attention_heads == config.hidden_size // config.num_attention_heads


def test_half_the_experts_are_at_least_those_of_a_token() -> None:
    config = transformers.MixtralConfig(num_local_experts=2, num_experts_per_tok=2)
    made, _ = halved(config, "experts")
    assert (made.num_local_experts, made.num_experts_per_tok) == (1, 1)


@pytest.mark.parametrize(
    ("what", "fields"), [("experts", {}), ("layers", {"num_hidden_layers": 3}), ("hidden", {"hidden_size": 63})]
)
def test_what_has_no_half_is_refused(what, fields) -> None:
    config = transformers.LlamaConfig()
    vars(config).update(fields)
    with pytest.raises(UsageError):
        halved(config, what)
