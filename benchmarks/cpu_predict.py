"""Trace one case of ``cpu_truth`` (given as JSON) for the CPU and print its predicted peak; a child of it."""

import json
import sys
from pathlib import Path

import torch

from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job


def main() -> None:
    """Trace and sweep the event stream."""
    options = json.loads(sys.argv[1])
    spec = JobSpec(target=FileTarget(path=Path(options.pop("path"))), **options)
    torch.set_num_threads(1)
    trace = trace_job(lambda: load_source(spec), spec, DeviceTraits(kind="cpu"))
    live, peak, where = 0, 0, -1
    for event in trace.events:
        storage = trace.storages[event.storage]
        live += storage.nbytes if event.action == "alloc" else -storage.nbytes
        if live > peak:
            peak, where = live, event.op
    name = trace.ops[where].name if where >= 0 else "set-up"
    print(json.dumps({"peak": peak, "at": name, "steps": len(trace.steps), "repeats": trace.repeats}))


if __name__ == "__main__":
    main()
