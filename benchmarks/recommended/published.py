"""Published configurations: what a source ran, and what of it ``memplan recommend`` is given."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_suffix(".toml")
BY_OP = "by-op.json"
"""A checkpoint plan."""
_KEPT = [
    {"op": "aten.mm.default", "calls": [0, 2, 4, 6]},
    {"op": "aten._scaled_dot_product_cudnn_attention.default", "calls": [0]},
]
"""What a block keeps by torchtitan's list (``_apply_op_sac``): every second product, the first among them, and
attention, which is cuDNN's on an H100; what else it names is not in these blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One run that somebody published, as options of memplan."""

    name: str
    """What it is called in the table."""
    source: str
    """Where it stands."""
    figure: str
    """What the source says of memory and speed, in its words."""
    preset: str
    """The model."""
    gpu: str
    """Profile."""
    gpus: int = 1
    """How many."""
    given: str
    """Options that say what is trained: they belong to the question."""
    own: str
    """Options that say how its authors made it fit, or fast: they are kept from ``recommend``."""
    allow: str = ""
    """Numerics that those change, so that ``recommend`` may, too."""
    blocks: int = 0
    """How many blocks ``BY_OP`` is for, if ``own`` names it."""
    note: str = ""
    """Where options only come near to what ran."""

    @property
    def asked(self) -> list[str]:
        """Arguments of ``memplan recommend``."""
        return [*self._on(self.given), *(["--allow", self.allow] if self.allow else [])]

    @property
    def ran(self) -> list[str]:
        """The same for what was published."""
        return self._on(f"{self.given} {self.own}")

    def write_plan(self, folder: Path) -> None:
        """Write the checkpoint plan that ``own`` names, if it names one."""
        blocks = [
            {"module": f"model.layers.{number}", "action": "selective", "saved": _KEPT} for number in range(self.blocks)
        ]
        if blocks:
            (folder / BY_OP).write_text(json.dumps({"version": 1, "blocks": blocks}), encoding="utf-8")

    def _on(self, words: str) -> list[str]:
        return [self.preset, "--gpu", self.gpu, "--gpus", str(self.gpus), *words.split()]


def published() -> list[Published]:
    """All of them."""
    return [Published(**row) for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["run"]]
