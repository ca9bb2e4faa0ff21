"""The integer program as PuLP writes it and HiGHS solves it.

Bytes are divided by their greatest common divisor, so that a row of whole numbers may be relaxed by half of one: no
tolerance of the solver then lets a byte through or shuts one out. What is left is scaled to about a thousand.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

from memplan.plan.checkpoint.blocks.problem.copies import turns
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, Option
from memplan.plan.checkpoint.blocks.solve.ilp_fetches import FetchRows
from memplan.plan.checkpoint.blocks.solve.ilp_rows import Holders, PositionRow, PositionRows, Term, running_bytes
from memplan.plan.checkpoint.blocks.solve.symmetry import ordered_pairs
from memplan.plan.quiet_highs import quiet_highs

SCALE = 1000.0
"""What the largest figures become: HiGHS's tolerances are absolute."""
TOLERANCE = 1e-9
"""HiGHS's for rows and whole numbers. After scaling half a byte of 500 GB is as much."""
RELATIVE_GAP = 1e-6
"""Of extra seconds, up to which a solution counts as proved optimal: roofline figures are less exact."""
PRESOLVED_BLOCKS = 64
"""Up to so many blocks HiGHS's presolve saves more time than it takes. Measured, 2 cores, HiGHS 1.15, November 2026:
0.1 s against 0.3 s with 32 blocks, 0.5 s to 2 s against 0.2 s to 0.8 s with 126."""
_LOST_BYTES = 2
"""Given away where copies are reckoned with in fractions of bytes, for rounding them up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IlpSolution:
    """The result of solving the integer program."""

    status: Literal["optimal", "infeasible", "stopped"]
    """``stopped``: by time."""
    choice: BlockChoice | None
    """The best solution, if any."""
    bound: float
    """Nothing is below it: extra seconds, or bytes of the peak."""


class IlpModel:
    """One question: what is cheapest within a budget, or (budget None) what needs least.

    Args:
        problem: The step and its blocks.
        rows: Its memory.
        budget: Bytes that may be alive at most; None: to be minimised.
        with_copies: May blocks be offloaded? Then ``rows`` has one row for each position.
        prefetch: Is what they offload fetched ahead?
    """

    def __init__(
        self,
        problem: BlockProblem,
        rows: PositionRows,
        budget: int | None,
        *,
        with_copies: bool,
        prefetch: bool = False,
    ) -> None:
        import pulp

        self._pulp, self._problem, self._rows, self._with_copies = pulp, problem, rows, with_copies
        self._menus = [
            [o for o in rows.menus[block] if with_copies or not self._option(block, o).offloaded_bytes]
            for block in range(len(problem.blocks))
        ]
        self._unit = 1 if with_copies else reduce(math.gcd, self._sizes(), 0) or 1
        most = sum(max(self._option(k, o).kept_bytes for o in menu) for k, menu in enumerate(self._menus))
        self._scale = SCALE / max(budget or 0, most, 1, *(position.fixed_bytes for position in problem.positions))
        dearest = sum(max(self._option(k, o).seconds for o in menu) for k, menu in enumerate(self._menus))
        self._second = SCALE / (dearest or problem.step_seconds or 1.0)
        self._lp = pulp.LpProblem("blocks", pulp.LpMinimize)
        self._chosen = [
            {option: self._lp.add_variable(f"y_{block}_{option}", cat="Binary") for option in menu}
            for block, menu in enumerate(self._menus)
        ]
        for options in self._chosen:
            self._lp += pulp.lpSum(options.values()) == 1
        self._any_of: dict[Holders, Any] = {}
        self._stalls: list[Any] = []
        self._under_way = self._copies() if with_copies else []
        self._fetches = FetchRows(pulp, self._lp, problem, self._chosen, self._scale) if prefetch else None
        self._most = self._variable("peak") if budget is None else None
        self._lp += self._most if budget is None else self._seconds()
        self._memory(budget)
        self._order()

    def solve(self, time_limit: float) -> IlpSolution:
        """Search until proved or the time is over."""
        is_peak = self._most is not None
        solver = self._pulp.HiGHS(
            msg=False,
            timeLimit=max(time_limit, 0.01),
            gapRel=0.0 if is_peak else RELATIVE_GAP,
            # Peaks are whole bytes: a gap below one proves them.
            gapAbs=0.9 * self._scale if is_peak else RELATIVE_GAP,
            primal_feasibility_tolerance=TOLERANCE,
            mip_feasibility_tolerance=TOLERANCE,
            presolve="on" if len(self._problem.blocks) <= PRESOLVED_BLOCKS else "off",
        )
        with quiet_highs():
            self._lp.solve(solver)
        highs = self._lp.solverModel
        status = str(highs.getModelStatus()).rpartition(".k")[2]
        if status in ("Infeasible", "UnboundedOrInfeasible"):
            return IlpSolution(status="infeasible", choice=None, bound=math.inf)
        info = highs.getInfo()
        bound = info.mip_dual_bound / (self._scale if is_peak else self._second)
        has_solution = info.primal_solution_status == 2
        return IlpSolution(
            status="optimal" if status == "Optimal" else "stopped",
            choice=self._choice() if has_solution else None,
            bound=max(bound, 0.0),
        )

    def _option(self, block: int, option: int) -> Option:
        return self._problem.blocks[block].options[option]

    def _sizes(self) -> list[int]:
        """Every size that depends on the choice."""
        sizes = [term.nbytes for _, change in self._rows.changes for term, _ in change]
        for block, menu in enumerate(self._menus):
            for option in (self._option(block, o) for o in menu):
                sizes += [option.kept_bytes, option.forward_peak_bytes, option.backward_peak_bytes]
        return sizes

    def _variable(self, name: str) -> Any:
        return self._lp.add_variable(name, lowBound=0.0)

    def _sum(self, block: int, figures: dict[int, float]) -> Any:
        """A block's figure under its chosen option."""
        return self._pulp.lpSum(figure * self._chosen[block][option] for option, figure in figures.items() if figure)

    def _seconds(self) -> Any:
        costs = [
            self._sum(block, {o: self._option(block, o).seconds * self._second for o in menu})
            for block, menu in enumerate(self._menus)
        ]
        return self._pulp.lpSum([*costs, *self._stalls, *self._waits()])

    def _waits(self) -> list[Any]:
        """What is waited for in backward: all that comes back, or what is left of it where blocks are fetched ahead."""
        if not self._with_copies:
            return []
        back = self._second / self._problem.host_link_bandwidth
        if self._fetches is not None:
            return [back / self._scale * wait for wait in self._fetches.waits]
        return [
            self._sum(index, {o: back * len(block.spans) * self._option(index, o).offloaded_bytes for o in menu})
            for index, (block, menu) in enumerate(zip(self._problem.blocks, self._menus, strict=True))
        ]

    def _memory(self, budget: int | None) -> None:
        """Rows of the memory formula."""
        states = self._states()
        for row in self._rows.rows:
            running = self._running(row)
            alive = [states[row.state], *([running] if running is not None else []), *self._at(row.position)]
            if budget is None:
                self._lp += self._pulp.lpSum(alive) + row.fixed_bytes * self._scale <= self._most
            else:
                left = (budget - row.fixed_bytes) // self._unit + 0.5
                left = left * self._unit - (_LOST_BYTES if self._with_copies else 0)
                self._lp += self._pulp.lpSum(alive) <= left * self._scale

    def _running(self, row: PositionRow) -> Any:
        if row.block is None:
            return None
        block = row.block
        return self._sum(
            block, {o: running_bytes(row, self._option(block, o)) * self._scale for o in self._menus[block]}
        )

    def _states(self) -> list[Any]:
        """Return what stays in each state, from one state to the next so that rows are short."""
        states: list[Any] = [0]
        for number, (before, change) in enumerate(self._rows.changes[1:], start=1):
            state = self._variable(f"s_{number}")
            self._lp += state == states[before or 0] + self._pulp.lpSum(
                times * self._term(term) for term, times in change
            )
            states.append(state)
        return states

    def _term(self, term: Term) -> Any:
        if term.block is None:
            return term.nbytes * self._scale * self._alive(term.holders)
        block = term.block
        return self._sum(block, {o: self._option(block, o).kept_bytes * self._scale for o in self._menus[block]})

    def _alive(self, holders: Holders) -> Any:
        """1 if one of the holders is chosen: at least each of them, and what it is for the later ones among them."""
        if holders not in self._any_of:
            block, options = holders[-1]
            held = self._pulp.lpSum(self._chosen[block][o] for o in options if o in self._chosen[block])
            if len(holders) > 1:
                alive = self._variable(f"z_{len(self._any_of)}")
                self._lp += alive >= held
                self._lp += alive >= self._alive(holders[:-1])
                held = alive
            self._any_of[holders] = held
        return self._any_of[holders]

    def _order(self) -> None:
        """Earliest first among blocks of one kind; a copy outward has its own best moment."""
        if self._with_copies:
            return
        for earlier, later, ranks in ordered_pairs(self._problem, self._rows):
            places = {option: float(rank) for option, rank in ranks.items() if option in self._menus[earlier]}
            self._lp += self._sum(earlier, places) <= self._sum(later, places)

    def _copies(self) -> list[Any]:
        """The queue of ``copies`` with stalls; a variable for each position."""
        count = len(self._problem.positions)
        sent: dict[int, list[Any]] = defaultdict(list)
        total = []
        for index, block in enumerate(self._problem.blocks):
            bytes_of = {o: self._option(index, o).offloaded_bytes * self._scale for o in self._menus[index]}
            for forward, _ in block.spans:
                sent[forward].append(self._sum(index, bytes_of))
                total.append(self._sum(index, bytes_of))
        if self._problem.host_bytes:
            self._lp += self._pulp.lpSum(total) <= self._problem.host_bytes * self._scale
        self._stalls = [self._variable(f"stall_{at}") for at in range(count)]
        per_second = self._problem.host_link_bandwidth * self._scale
        rooms = [
            per_second * position.seconds + per_second / self._second * stall
            for position, stall in zip(self._problem.positions, self._stalls, strict=True)
        ]
        outward = [self._variable(f"out_{at}") for at in range(count)]
        for at in range(1, count):
            self._lp += outward[at] >= self._pulp.lpSum(sent[at - 1])
            self._lp += outward[at] >= self._pulp.lpSum(sent[at - 1]) + outward[at - 1] - rooms[at - 1]
        for at in turns(self._problem):
            self._lp += outward[at] <= 0
        return outward

    def _at(self, position: int) -> list[Any]:
        """Bytes on their way to the host at a position, and those that are back before their turn."""
        ahead = self._fetches.at[position] if self._fetches else []
        return [*self._under_way[position : position + 1], *ahead]

    def _choice(self) -> BlockChoice:
        options = tuple(max(options, key=lambda o: options[o].value() or 0.0) for options in self._chosen)
        stalls = tuple(max(0.0, stall.value() or 0.0) / self._second for stall in self._stalls)
        offloaded = any(self._option(block, option).offloaded_bytes for block, option in enumerate(options))
        return BlockChoice(
            options=options, stalls=stalls if offloaded else (), prefetch=offloaded and self._fetches is not None
        )
