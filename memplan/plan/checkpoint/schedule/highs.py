"""One thin door to HiGHS for programs of zeros and ones that are too big to be built row by row in Python objects."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memplan.plan.quiet_highs import quiet_highs

if TYPE_CHECKING:
    from collections.abc import Collection

    import highspy
    import numpy as np


@dataclass(slots=True, kw_only=True)
class BinaryProgram:
    """Minimise ``costs · x`` over ``x`` in {0, 1} with ``lower <= A x <= upper``; grown row by row."""

    costs: list[float] = field(default_factory=list)
    """One per variable."""
    starts: list[int] = field(default_factory=lambda: [0])
    """Where each row's entries begin, and where the last one's end."""
    indices: list[int] = field(default_factory=list)
    """Variable of each entry."""
    values: list[float] = field(default_factory=list)
    """Coefficient of each entry."""
    lower: list[float] = field(default_factory=list)
    """One per row."""
    upper: list[float] = field(default_factory=list)
    """One per row."""

    def variable(self, cost: float = 0.0) -> int:
        """Add one and return its index."""
        self.costs.append(cost)
        return len(self.costs) - 1

    def row(self, indices: list[int], values: list[float], lower: float, upper: float) -> None:
        """Add ``lower <= values · x[indices] <= upper``."""
        self.indices += indices
        self.values += values
        self.starts.append(len(self.indices))
        self.lower.append(lower)
        self.upper.append(upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySolution:
    """The solution of a binary program, and its bound."""

    chosen: "np.ndarray | None"
    """Which variables are one; None: no solution was found."""
    bound: float
    """No solution costs less; infinite if there is none."""
    proven: bool
    """The solution is optimal, or there is none."""


def solve_binary(
    program: BinaryProgram,
    *,
    time_limit: float,
    threads: int,
    start: dict[int, float] | None = None,
    free: "Collection[int] | None" = None,
) -> BinarySolution:
    """Hand a program to HiGHS.

    It begins with the values of ``start``. Only the variables of ``free`` may differ from these, which then are all
    there; None: all may. Costs are in the program's own unit.
    """
    import highspy
    import numpy as np

    if not program.costs:
        possible = all(lower <= 0.0 <= upper for lower, upper in zip(program.lower, program.upper, strict=True))
        chosen = np.zeros(0, dtype=bool) if possible else None
        return BinarySolution(chosen=chosen, bound=0.0 if possible else float("inf"), proven=True)
    # One pool of threads serves the process; with another number of them than at first a run would fail.
    highspy.Highs.resetGlobalScheduler(True)
    with quiet_highs():
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {"output_flag": False, "time_limit": time_limit, "threads": threads, "mip_rel_gap": 0.0}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    # Costs and bytes differ by ten orders of magnitude between instances; the solver's tolerances are absolute.
    unit = max(program.costs, default=0.0) / 1000 or 1.0
    model = _model(program, unit)
    if start is not None and free is not None:
        model.col_lower_ = np.array([0.0 if each in free else start[each] for each in range(len(program.costs))])
        model.col_upper_ = np.array([1.0 if each in free else start[each] for each in range(len(program.costs))])
    solver.passModel(model)
    if start:
        solver.setSolution(
            len(start), np.array(list(start), dtype=np.int32), np.array(list(start.values()), dtype=np.float64)
        )
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return BinarySolution(chosen=None, bound=float("inf"), proven=True)
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    chosen = np.array(solver.getSolution().col_value) > 0.5 if found else None
    bound = max(0.0, info.mip_dual_bound) * unit
    return BinarySolution(chosen=chosen, bound=bound, proven=status == highspy.HighsModelStatus.kOptimal)


def _model(program: BinaryProgram, unit: float) -> "highspy.HighsLp":
    import highspy
    import numpy as np

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.costs), len(program.lower)
    model.col_cost_ = np.array(program.costs) / unit
    model.col_lower_, model.col_upper_ = np.zeros(len(program.costs)), np.ones(len(program.costs))
    model.row_lower_, model.row_upper_ = np.array(program.lower), np.array(program.upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.array(program.starts, dtype=np.int32)
    model.a_matrix_.index_ = np.array(program.indices, dtype=np.int32)
    model.a_matrix_.value_ = np.array(program.values, dtype=np.float64)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(program.costs)
    return model
