"""``--lora`` as it is typed, and as peft writes it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.job.adapters import Lora, parse_lora

names = st.lists(
    st.sampled_from(["q_proj", "v_proj", "fc1", "to_k", "all-linear"]), min_size=1, max_size=3, unique=True
)
loras = st.builds(
    Lora,
    rank=st.integers(1, 4096),
    alpha=st.integers(1, 512).map(float),
    targets=names.map(tuple),
    dropout=st.sampled_from([0.0, 0.05, 0.5]),
    dora=st.booleans(),
    prepare=st.booleans(),
)


@given(loras)
def test_what_is_printed_reads_back(lora: Lora) -> None:
    assert parse_lora(str(lora)) == lora


@pytest.mark.parametrize(
    "text", ["r=0", "r=two", "dropout=1", "rank=4", "r=4,r=8", "dora=maybe", "", "r=", "prepare=1"]
)
def test_other_things_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--lora"):
        parse_lora(text)


def written(folder: Path, **config: Any) -> str:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(config))
    return str(file)


def test_a_configuration_of_peft_is_read_whole(tmp_path: Path) -> None:
    path = written(
        tmp_path, peft_type="LORA", r=4, lora_alpha=2, target_modules=["a", "b"], lora_dropout=0.1, use_rslora=True
    )
    lora = parse_lora(path)
    assert (lora.rank, lora.alpha, lora.targets, lora.dropout, lora.dora) == (4, 2, ("a", "b"), 0.1, False)
    assert lora.config is not None
    assert lora.config["use_rslora"] is True
    assert str(lora) == path


def test_configurations_of_other_kinds_and_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of IA3"):
        parse_lora(written(tmp_path, peft_type="IA3"))
    with pytest.raises(UsageError, match="cannot read"):
        parse_lora(str(tmp_path / "none.json"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match="cannot read"):
        parse_lora(str(tmp_path / "broken.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(UsageError, match="of None"):
        parse_lora(str(tmp_path / "list.json"))
