"""The JSON report of ``memplan recommend``."""

from memplan.contract.document import Document, head
from memplan.contract.table import Table
from memplan.plan.recommend.records import Candidate, Evaluated, Recommendation, Rejected, Remedy, SingleChange
from memplan.timing.rates import StepTime


def _parallel(candidate: Candidate) -> str:
    """How the job is sharded, as ``--parallel`` takes it."""
    return str(candidate.spec.parallel)


DOCUMENT = Document(
    name="recommend",
    root=Recommendation,
    tables={
        Recommendation: Table(
            keys={
                **head("recommend"),
                "gpu": {"name": "gpu", "title": "gpu_title", "usable_bytes": "usable_bytes"},
                "best": "best",
                "critical_batch": "critical",
                "result": "ended",
                "timings": {"search_seconds": "seconds"},
                "versions": {"memplan": "memplan_version", "torch": "torch_version"},
            }
        ),
        Candidate: Table(
            keys={"batch_size": "spec.batch_size", "grad_accum": "spec.grad_accum", "parallel": _parallel},
        ),
        Evaluated: Table(
            keys={"step_seconds": "time", "samples_per_second": "samples_per_second"},
            spread=("candidate",),
            omit=("stage_bytes",),
        ),
        StepTime: Table(omit=("passes", "blocking", "fetched", "host_update")),
        SingleChange: Table(spread=("candidate",)),
        Rejected: Table(spread=("candidate",)),
        Remedy: Table(keys={"configuration": "evaluated"}),
    },
)
render = DOCUMENT.render
