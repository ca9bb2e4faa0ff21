"""Enters in the ledger what kernels take and return on the side."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from memplan.tracing.ledger import Ledger
from memplan.tracing.records import DeviceTraits
from memplan.tracing.running import Running
from memplan.tracing.scratch.rules import Call, Scratch, Script

if TYPE_CHECKING:
    from memplan.units import StorageId

_NOTHING = Script()


class ScratchPlayer:
    """Plays the scripts of scratch rules.

    Args:
        ledger: Takes the allocations.
        device: What the kernels run on.
        is_host: Does a tensor lie in host memory?
        heard: What a real run read of the data where the program is now; None where there was none.
    """

    def __init__(
        self,
        ledger: Ledger,
        device: DeviceTraits,
        is_host: Callable[[torch.Tensor], bool],
        heard: Callable[[], float | None],
    ) -> None:
        self._ledger, self._device, self._is_host, self._heard = ledger, device, is_host, heard
        self._kept: set[str] = set()
        self._held: dict[str, StorageId] = {}
        self.bounded: set[str] = set()
        """Ops of which calls were met whose scratch is known between bounds only."""

    def script(self, running: Running, result: Any) -> Script:
        """What an op's kernel does, results known; nothing without a rule."""
        rule = running.operator.scratch
        if rule is None:
            return _NOTHING
        call = Call(
            name=running.operator.name,
            args=running.args,
            kwargs=running.kwargs,
            out=result,
            device=self._device,
            in_backward=running.in_backward,
            is_host=self._is_host,
            heard=self._heard,
        )
        script = rule(call) or _NOTHING
        if any(line.most is not None for line in script.lines):
            self.bounded.add(running.operator.name)
        return script

    def play(self, lines: tuple[Scratch, ...]) -> None:
        """Enter a kernel's allocations and frees in order."""
        for line in lines:
            action, key, nbytes = line[:3]
            if action == "alloc":
                self._held[key] = self._ledger.scratch(nbytes, most=line.most, spare=line.spare)
            elif action == "free":
                self._ledger.release_scratch(self._held.pop(key))
            elif key not in self._kept:
                self._kept.add(key)
                self._ledger.scratch(nbytes, role="workspace", name=key)

    def end(self) -> None:
        """The kernel returns: what it still holds goes, last in first out."""
        while self._held:
            self._ledger.release_scratch(self._held.popitem()[1])
