"""Peaks that Liger-Kernel publishes of its own kernels and of the code that they replace, run again on fake tensors.

The figures are ``benchmark/data/all_benchmark_data.csv`` of github.com/linkedin/Liger-Kernel: ``max_memory_allocated``
in MiB, the median over ten runs of a function after the peak's reset, so the second run and those after it decide.
The programs are Liger-Kernel's own: its source releases hold both the library and ``benchmark/scripts``, and a row is
run with the first release after the day of measuring, which stands for the tree that was measured (``releases``).

What it needs, and without which there are no cases:

* ``MEMPLAN_DATA`` (or ``../shared/data`` beside the checkout) with ``kernels/liger_all_benchmark_data.csv``;
* ``MEMPLAN_LIGER``: a folder of unpacked source releases, ``liger_kernel-0.5.4/src``, ``…/benchmark/scripts`` and so on
  (``pip download --no-deps --no-binary :all: liger-kernel==0.5.4``). Releases before 0.5.4 have no scripts: there the
  script is 0.5.4's. ``releases.DAYS`` names the releases that are looked for;
* triton and transformers, installed.
"""

from published.case import Case, Excluded
from published.liger.exclusions import reason_against
from published.liger.measure import predict
from published.liger.releases import Release, release_of
from published.liger.rows import Row, read_rows

__all__ = ["cases"]

SOURCE = "Liger-Kernel, benchmark/data/all_benchmark_data.csv"
NO_RELEASE = "no release at hand has its script"
NEXT_RELEASE = "the first release after the day of measuring stands for the tree that was measured"
OTHER_SCRIPT = "the script is that of another release, the nearest with the row's options"


def cases() -> tuple[list[Case], list[Excluded]]:
    """All rows with memory figures: those that can be run, and the others with the reason."""
    found: list[Case] = []
    excluded: list[Excluded] = []
    for row in read_rows():
        release, reason = release_of(row), reason_against(row)
        if release is None or reason is not None:
            excluded.append(Excluded(id=row.id, source=SOURCE, reason=reason or NO_RELEASE))
        else:
            found.append(_case(row, release))
    return found, excluded


def _case(row: Row, release: Release) -> Case:
    return Case(
        id=row.id,
        source=SOURCE,
        workload="kernel",
        metric="allocated",
        measured=row.measured,
        # Figures are float32, whose last place is 2^-23 of them or less.
        resolution=max(1, row.measured >> 24),
        predict=lambda: predict(row, release),
        assumptions=(NEXT_RELEASE,) if release.scripts == release.library else (NEXT_RELEASE, OTHER_SCRIPT),
    )
