"""What does ``memplan recommend`` answer where somebody published what they ran: the same, better, or worse, and why?

    python benchmarks/recommend_published.py [--only NAME …] [--work DIR] [--budget 60]

``recommend`` is told the model, the batch, the cards and which numerics the published run changed, and not how its
authors made it fit. Both ways are traced and timed by memplan (published speeds are of other code: they stand beside
for what they are). Rows: ``recommended/published.toml``. Every command is a process of its own, as a user types it;
what a step has given stays in ``--work``.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from recommended.compare import Compared, compared
from recommended.published import published
from recommended.published_report import lines, text
from recommended.rows import folder_of

RESULTS = Path(__file__).parent / "results" / "recommend_published.txt"


def main() -> None:
    """Ask what is missing, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="how names begin; nothing is written")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "memplan-recommend-published")
    parser.add_argument("--budget", type=int, default=60, help="seconds of a search")
    parser.add_argument("--jobs", type=int, default=2, help="processes of a search")
    given = parser.parse_args()
    done: list[Compared] = []
    for run in published():
        if given.only and not run.name.startswith(tuple(given.only)):
            continue
        folder = folder_of(run.name, given.work.resolve())
        done.append(compared(run, folder, budget=given.budget, processes=given.jobs))
        print("\n".join(lines(done[-1])), file=sys.stderr, flush=True)
    page = text(done)
    if not given.only:
        RESULTS.write_text(page, encoding="utf-8")
    print(page, end="")


if __name__ == "__main__":
    main()
