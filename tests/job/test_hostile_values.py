"""Values that the drawn cases of ``tests/fuzz`` found to end in an internal error."""

from pathlib import Path

import pytest

from memplan.errors import UsageError
from memplan.job.adapters import parse_lora
from memplan.units import parse_size


@pytest.mark.parametrize("text", ["9" * 10_000, "1" + "0" * 400 + "GiB", "9223372036854775808"])
def test_a_size_beyond_any_address_space_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="more than any address space"):
        parse_size(text)


@pytest.mark.parametrize("modules", ["0.5", "true", "[1]", '{"a": 1}'])
def test_an_adapter_without_names_of_modules_is_refused(modules: str, tmp_path: Path) -> None:
    path = tmp_path / "adapter_config.json"
    path.write_text(f'{{"peft_type": "LORA", "target_modules": {modules}}}')
    with pytest.raises(UsageError, match="target_modules must be"):
        parse_lora(str(path))
