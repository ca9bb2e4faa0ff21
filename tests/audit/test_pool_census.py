"""What the audit counts of memory pools, in a package with planted defects and in packages without pools."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from memplan.audit.pool_records import PoolCensus
from memplan.audit.run import audit
from memplan.cli.app import main

PACKAGE = {
    "__init__.py": "from .pools import MemoryPool, get_global_memory_pool\n__all__ = ['get_global_memory_pool']\n",
    "pools.py": """
class MemoryPool:
    def allocate(self, size): ...
    def deallocate(self, buffer): ...


class BufferPool:
    def acquire(self, size): ...
    def release(self, buffer): ...


_POOL = MemoryPool()


def get_global_memory_pool():
    return _POOL


def attention_pool() -> MemoryPool:
    return _POOL
""",
    "attention.py": """
from torch import nn

from .pools import MemoryPool, attention_pool


class Attention(nn.Module):
    def __init__(self, enable_memory_pool: bool = True):
        super().__init__()
        self.pool = attention_pool() if enable_memory_pool else None

    def forward(self, x):
        scores = self.pool.allocate(x.numel())
        mixed = self.pool.allocate(x.numel())
        mixed.copy_(x)
        self.pool.deallocate(scores)
        return x


class Wide(Attention):
    pass
""",
    "experts.py": """
import torch.nn as nn

from .pools import BufferPool


class Experts(nn.Module):
    def __init__(self, use_buffer_pool=False):
        self.buffer_pool = BufferPool()
        self.gate = self.buffer_pool.acquire(10)
        self.up = self.buffer_pool.acquire(10)


class Balanced(nn.Module):
    def forward(self, x, buffer_pool):
        buffer = buffer_pool.acquire(10)
        with buffer_pool.acquire(20) as other:
            x = x + buffer + other
        buffer_pool.release(buffer)
        return x
""",
    "plain.py": """
from torch import nn


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.max_pool = nn.MaxPool2d(2)
""",
    "test_pools.py": "from .pools import get_global_memory_pool\nget_global_memory_pool().allocate(3)\n",
}
WITHOUT_POOLS = (
    "accelerate", "peft", "einops", "lightning_fabric", "torchmetrics", "torchvision", "safetensors", "gymnasium",
    "tqdm", "rich", "requests", "joblib", "packaging", "aiohttp", "huggingface_hub", "networkx", "click", "urllib3",
    "jsonschema", "pygments",
)  # fmt: skip
"""Those with pools of connections, of processes and of pixels among them."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def census(package: Path) -> PoolCensus:
    return audit([package]).pools


def test_a_factory_that_no_file_uses(census: PoolCensus) -> None:
    assert [each.name for each in census.unused_factories] == ["get_global_memory_pool"]


def test_takes_and_returns_by_class_and_file(census: PoolCensus) -> None:
    counted = {each.owner: (Path(each.file).name, each.taken, each.given_back) for each in census.calls}
    assert counted == {
        "Attention": ("attention.py", 2, 1),
        "Experts": ("experts.py", 2, 0),
        "Balanced": ("experts.py", 2, 2),
    }
    assert [each.owner for each in census.calls if each.is_short] == ["Attention", "Experts"]


def test_modules_without_a_pool(census: PoolCensus) -> None:
    assert census.modules == 5
    assert [each.name for each in census.modules_without_pool] == ["Norm"]


def test_switches_and_their_defaults(census: PoolCensus) -> None:
    assert {each.name: each.default for each in census.switches} == {
        "enable_memory_pool": True,
        "use_buffer_pool": False,
    }


def test_pools_that_are_imported_and_used(census: PoolCensus) -> None:
    assert census.imported == {"MemoryPool": 2, "BufferPool": 1, "get_global_memory_pool": 1}
    assert census.used == {"MemoryPool": 1, "BufferPool": 1, "attention_pool": 1}


def test_names_that_differ_between_classes(census: PoolCensus) -> None:
    assert census.differing_names == {
        "allocate": ("MemoryPool",),
        "acquire": ("BufferPool",),
        "deallocate": ("MemoryPool",),
        "release": ("BufferPool",),
    }


def test_layers_that_pool_are_no_pools(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(
        "from torch import nn\nfrom .other import BlockPool\n\n\nclass MemoryPool(nn.Module):\n    pass\n\n\n"
        "class Base(nn.Module):\n    pass\n"
    )
    (tmp_path / "other.py").write_text("from .layers import Base\nimport torch\n\n\nclass BlockPool(Base):\n    pass\n")
    assert audit([tmp_path]).pools.is_empty


def test_text_names_what_was_planted(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(package)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "get_global_memory_pool" in said
    assert "no file uses this pool" in said
    assert "(2 taken, 1 given back)" in said
    assert "(2 taken, 0 given back)" in said
    assert "module without a pool" in said
    assert "on by default 1 of 2: enable_memory_pool" in said


def test_json_and_markdown_have_the_census(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["audit", str(package), "--json"])
    pools: dict[str, Any] = json.loads(capsys.readouterr().out)["pools"]
    assert pools["unused_factories"][0]["name"] == "get_global_memory_pool"
    assert pools["calls"][0] | {"file": ""} == {
        "file": "", "owner": "Attention", "taken": 2, "given_back": 1, "handed_on": 0, "gives_all_back": False,
    }  # fmt: skip
    main(["audit", str(package), "-f", "markdown"])
    assert "no file uses this pool" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_POOLS)
def test_packages_without_pools_have_an_empty_census(name: str) -> None:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    found = audit([Path(spec.submodule_search_locations[0])], rules=("MA082",))
    assert found.pools.is_empty, found.pools
