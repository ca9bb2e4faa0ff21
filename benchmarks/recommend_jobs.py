"""Winners of ``memplan recommend``, emitted, loaded by their frameworks, read back and traced again: the same peak?

    python benchmarks/recommend_jobs.py [--only NAME …] [--work DIR] [--budget 60] [--begun]

Every command is a process of its own, as a user types it. What a step has given stays in ``--work``, so that a run that
was broken off goes on where it was; delete a job's folder to have it again. A file that has no word for something is
traced with the option typed beside it, and the table says which. Emitted code is called by a target file
(``recommended/*_target.py``), which is traced with no words of its own for what the code says.
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from recommended import report
from recommended.jobs import JOBS
from recommended.rows import Row, folder_of, rows_of

RESULTS = Path(__file__).parent / "results" / "recommend_jobs.txt"
AT_ONCE = 2
"""Processes."""


def main() -> None:
    """Run what is missing, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of jobs, or how they begin; nothing is written")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "memplan-recommend-jobs")
    parser.add_argument("--budget", type=int, default=60, help="seconds of a search")
    parser.add_argument("--begun", action="store_true", help="only jobs that --work has a search of")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the text; the CSV lies beside it")
    given = parser.parse_args()
    chosen = [job for job in JOBS if not given.only or job.name.startswith(tuple(given.only))]
    if given.begun:
        chosen = [job for job in chosen if (folder_of(job.name, given.work) / "search.json").exists()]
    done: list[Row] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for job in chosen:
            found = rows_of(job, given.work.resolve(), partial(pool.map), budget=given.budget, processes=AT_ONCE)
            print("\n".join(report.lines(found)), file=sys.stderr, flush=True)
            done += found
    text = report.text(done)
    if not given.only:
        given.out.write_text(text, encoding="utf-8")
        report.write_csv(given.out.with_suffix(".csv"), done)
    print(text, end="")


if __name__ == "__main__":
    main()
