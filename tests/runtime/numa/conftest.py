"""The trees of all machines, each written once: they have thousands of files, and tests only read them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.numa.machines import Machine, build

Trees = Callable[[Machine], Path]


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Machine → its tree."""
    written: dict[str, Path] = {}

    def tree(machine: Machine) -> Path:
        if machine.name not in written:
            written[machine.name] = build(tmp_path_factory.mktemp(machine.name), machine)
        return written[machine.name]

    return tree
