"""The block-level problem and its answers.

Time is a row of *positions*: the run of a block's forward, of its backward, or what lies between two of them. Memory at
a position, with option ``o[k]`` chosen for each block ``k``::

    fixed[p]
    + sum of kept_bytes of every block whose forward is before p and whose backward is at p or after it
    + sum of nbytes of every interface tensor alive at p
    + peak_bytes of the block that runs at p, under its option
    + bytes under way to the host during p, and bytes fetched ahead (``copies``)

An interface tensor is alive after the position that makes it: there it is part of the peak. Segments: ``memory``.
"""

from dataclasses import dataclass
from typing import Literal

from memplan.runtime.checkpoint.records import Action, SavedOp
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run one block, with what was measured of it in a trace."""

    action: Action
    """What the block does."""
    saved: tuple[SavedOp, ...] = ()
    """What it keeps, if selective."""
    kept_bytes: Bytes
    """Its own activations alive between its forward and its backward, interface tensors aside."""
    forward_peak_bytes: Bytes
    """Most bytes alive during its forward above those at its start."""
    backward_peak_bytes: Bytes
    """Most bytes alive during its backward (recomputation included) above those at its start, were no interface tensor
    freed in it."""
    seconds: float
    """Extra time per step of its recomputation, by roofline; the waiting for copies is the choice's (``copies``). A
    recomputation stops as soon as backward has all that it needs: it is cheaper than the whole forward."""
    holds: tuple[int, ...]
    """Interface tensors that it needs in its backward: indices into ``BlockProblem.interfaces``."""
    offloaded_bytes: int = 0
    """Bytes that it copies to the host in forward and back in backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBlock:
    """A block and its menu."""

    module: str
    """Qualified name."""
    kind: int
    """Blocks of one kind have the same structure, shapes and hence figures."""
    spans: tuple[tuple[int, int], ...]
    """Positions of its forward and of its backward, one pair for each micro-batch."""
    options: tuple[Option, ...]
    """Option 0 is ``keep``."""

    @property
    def checkpoint_option(self) -> Option:
        """The option that keeps nothing of the block; one more forward costs as much if it may stop early.

        Raises:
            LookupError: The menu has no such option, so that the block cannot be part of a segment.
        """
        for option in self.options:
            if option.action is Action.CHECKPOINT:
                return option
        raise LookupError(f"{self.module} has no option 'checkpoint'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A tensor passed between blocks: alive while forward needs it, then until the end of its last holder's backward.

    Its last holder is the one whose backward comes last. A block that holds it does so through its own backward.
    """

    nbytes: Bytes
    """Its size, rounded as the allocator rounds."""
    born: int
    """Position that makes it."""
    forward_end: int
    """Last position up to which it lives whoever holds it."""
    micro_batch: int = 0
    """Which pair of its holders' ``spans`` it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One stretch of the step."""

    name: str
    """For people: ``forward of layers.3``, ``loss``, ``optimizer``."""
    phase: Literal["forward", "backward", "optimizer"]
    """Its phase."""
    block: int | None
    """The block that runs; None between blocks."""
    fixed_bytes: Bytes
    """Alive whatever is chosen: parameters, optimizer state, gradients so far, activations outside blocks; between
    blocks also the stretch's own peak."""
    seconds: float
    """Time that it takes without any plan, by roofline; offloading has that long to copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProblem:
    """A step and its blocks, for each of which an option is to be chosen; the budget comes with the call."""

    positions: tuple[Position, ...]
    """The step in order."""
    blocks: tuple[ModuleBlock, ...]
    """In order of their first forward."""
    interfaces: tuple[Interface, ...]
    """Tensors between blocks."""
    chain: bool
    """Is every block's result the next one's first argument, all else being equal? Only then can segments be formed."""
    step_seconds: float
    """Roofline time of the unplanned step."""
    host_link_bandwidth: float = 0.0
    """Bytes per second to the host, each way; 0: no offloading."""
    state_bytes: int = 0
    """What each call that runs again keeps of the random generator; options have theirs in their figures, and segments
    and the blocks inside them have one each."""
    host_bytes: int = 0
    """Pinned host memory that may be used; 0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChoice:
    """A solution: one option per block, and segments that run again as one."""

    options: tuple[int, ...]
    """Index into each block's menu."""
    segments: tuple[tuple[int, int], ...] = ()
    """Half-open ranges of blocks, properly nested, outermost first."""
    stalls: tuple[float, ...] = ()
    """Seconds that the step waits for copies to the host at the end of each position; empty: nowhere."""
    prefetch: bool = False
    """Is what blocks offload fetched while the offloaded block before them runs backward?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalChoice:
    """Nothing cheaper fits, within the problem as it is stated."""

    choice: BlockChoice
    seconds: float
    """Extra time of the choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeasibleChoice:
    """It fits; something cheaper may exist."""

    choice: BlockChoice
    seconds: float
    """Extra time of the choice."""
    bound_seconds: float | None
    """No choice is cheaper than this; None where the method knows no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasibleChoice:
    """No choice fits, or (unless proved) the method finds none."""

    position: int
    """The binding one: where the least peak that can be had is reached."""
    least_bytes: Bytes
    """The least budget that can be met."""
    choice: BlockChoice
    """What reaches it."""
    is_proved: bool = True
    """Is it proved that nothing less can be met? False: it is the least that the method found in its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceTimedOut:
    """The time was over before anything was proved or found."""

    best: BlockChoice | None
    """The best choice known that fits, or none."""


ChoiceResult = OptimalChoice | FeasibleChoice | InfeasibleChoice | ChoiceTimedOut
