"""What ``memplan graph`` and ``memplan reuse-plan`` say of twenty models, held against running and counting.

    python benchmarks/graph.py --fx [NAME …] --lifetimes [NAME …] --methods [NAME …]

``--fx``: the fx graph of the traced steps, saved, loaded and run by ``torch.fx.Interpreter`` on real tensors, beside
the eager steps: parameters and buffers afterwards. ``--lifetimes``: the edges of the lifetime graph beside those that
are counted by going through the recorded allocations and frees op by op. ``--methods``: every method of ``reuse-plan``,
on the steps and on minimalloc's instances (``$MEMPLAN_DATA/dsa``).
"""

import argparse
import copy
import io
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
import torch.fx
from graph_models import MODELS, SmallModel
from reuse_instances import CAPACITY, DATA, header

from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.lifetime.graph import count_meetings, lifetimes_of, meetings
from memplan.plan.reuse.answer_records import MethodOutcome
from memplan.plan.reuse.csv_file import read_problem
from memplan.plan.reuse.from_job import gather_job
from memplan.plan.reuse.methods import METHODS, place
from memplan.plan.reuse.records import Problem
from memplan.tracing.graph_module import graph_module, saved
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job

BATCH = 4
SEED = 7
STEP_SECONDS, HARD_SECONDS = 2.0, 5.0
"""For each method."""
GPU = "h100-80g"
MOST_EDGES = 10_000_000
"""So many in two sets take some gigabytes."""
INSTANCES = "ABCDEFGHIJK"


def traced(model: SmallModel) -> Trace:
    """Return the steps as the CPU runs them."""
    spec = JobSpec(target=FileTarget(path=Path("model.py")), batch_size=BATCH)
    return trace_job(model.source, spec, DeviceTraits(kind="cpu"))


def run_eagerly(given: SmallModel, module: torch.nn.Module, batches: Sequence[object]) -> None:
    """Train a model for one step with each batch."""
    source = given.source()
    assert source.optimizer is not None
    optimizer = source.optimizer(module.parameters())
    torch.manual_seed(SEED)
    for batch in batches:
        output = module(**batch) if isinstance(batch, dict) else module(batch)
        given.loss(output, batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def run_graph(trace: Trace, module: torch.nn.Module, batches: Sequence[object]) -> int:
    """Do the same by the interpreter, from the saved graph; return how many calls it has."""
    made = graph_module(trace)
    values = dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers()])
    inputs = _inputs(made, values, batches)
    loaded = torch.load(io.BytesIO(saved(made)), weights_only=False)
    torch.manual_seed(SEED)
    with torch.no_grad():
        torch.fx.Interpreter(loaded).run(*inputs)
    return sum(node.op == "call_function" for node in made.graph.nodes)


def _inputs(
    made: torch.fx.GraphModule, values: dict[str, torch.Tensor], batches: Sequence[object]
) -> Iterator[torch.Tensor]:
    """Placeholders of batches come in order; all other ones by their names in the model."""
    tensors = [tensor for batch in batches for tensor in _tensors(batch)]
    remaining = iter(tensors)
    for node in made.graph.nodes:
        if node.op == "placeholder":
            name = node.meta["tensor"]
            yield values[name].detach() if name in values else next(remaining)


def _tensors(batch: object) -> Iterator[torch.Tensor]:
    """The tensors of a batch, each once: labels may be the words themselves."""
    parts = batch.values() if isinstance(batch, dict) else [batch]
    yield from {id(part): part for part in parts if isinstance(part, torch.Tensor)}.values()


def fx_rows(names: Iterable[str]) -> Iterator[str]:
    """Run each model both ways."""
    yield f"{'model':20}{'calls':>7}{'steps':>7}{'tensors':>9}{'equal':>7}  {'largest difference':>18}"
    alike, count = 0, 0
    for name in names:
        given = MODELS[name]
        trace = traced(given)
        torch.manual_seed(0)
        eager = given.build()
        twin = copy.deepcopy(eager)
        batches = [given.batch(BATCH) for _ in trace.steps]
        run_eagerly(given, eager, batches)
        calls = run_graph(trace, twin, batches)
        pairs = list(zip(eager.state_dict().values(), twin.state_dict().values(), strict=True))
        equal = sum(torch.equal(one, other) for one, other in pairs)
        most = max(float((one.double() - other.double()).abs().max()) for one, other in pairs if one.numel())
        alike, count = alike + (equal == len(pairs)), count + 1
        yield f"{name:20}{calls:>7,}{len(trace.steps):>7}{len(pairs):>9}{equal:>7}  {most:>18.2g}"
    yield f"{alike} of {count} equal to the eager steps, to the bit"


def counted_edges(trace: Trace) -> set[tuple[int, int]]:
    """Return every two device storages that are alive in one op, by going through all ops; set-up counts as -1."""
    born: dict[int, list[int]] = {}
    gone: dict[int, list[int]] = {}
    for event in trace.events:
        (born if event.action == "alloc" else gone).setdefault(int(event.op), []).append(int(event.storage))
    counts = {int(storage.id) for storage in trace.storages if storage.place == "device" and storage.nbytes}
    alive: set[int] = set()
    edges: set[tuple[int, int]] = set()
    for op in range(-1, len(trace.ops)):
        for fresh in born.get(op, []):
            if fresh in counts:
                edges |= {(min(fresh, other), max(fresh, other)) for other in alive}
                alive.add(fresh)
        alive.difference_update(gone.get(op, []))
    return edges


def lifetime_rows(names: Iterable[str]) -> Iterator[str]:
    """Compare edges."""
    yield f"{'model':20}{'tensors':>9}{'edges':>11}{'missing':>9}{'further':>9}"
    for name in names:
        trace = traced(MODELS[name])
        nodes = lifetimes_of(build_lifetimes(trace))
        if (edges := count_meetings(nodes)) > MOST_EDGES:
            yield f"{name:20}{len(nodes):>9,}{edges:>11,}  too many to be listed here"
            continue
        drawn = {(min(pair), max(pair)) for pair in meetings(nodes)}
        counted = counted_edges(trace)
        missing, further = len(counted - drawn), len(drawn - counted)
        yield f"{name:20}{len(nodes):>9,}{len(counted):>11,}{missing:>9}{further:>9}"


def problems(names: Iterable[str]) -> Iterator[tuple[str, Problem, float]]:
    """Return what is to be placed, and the seconds for each method."""
    profile = load_profile(GPU)
    spec = JobSpec(target=FileTarget(path=Path("model.py")), batch_size=BATCH)
    for name in names:
        if name in MODELS:
            yield name, gather_job(spec, profile, load=MODELS[name].source).problem, STEP_SECONDS
        else:
            yield name, read_problem(DATA / "minimalloc" / f"{name}.{CAPACITY}.csv"), HARD_SECONDS


def method_rows(names: Iterable[str]) -> Iterator[str]:
    """Every method on every problem: height above the best bound, and seconds."""
    columns = "".join(f"{name:>17}" for name in METHODS)
    yield f"{'problem':20}{'buffers':>8}{'bound':>13}{columns}"
    for name, problem, seconds in problems(names):
        result, rows = place(problem, method="all", time_limit=seconds)
        bound = max(row.bound_bytes or 0 for row in rows)
        cells = "".join(_cell(row, bound) for row in rows)
        yield f"{name:20}{len(problem.buffers):>8,}{bound:>13,}{cells}"
        del result


def _cell(row: MethodOutcome, bound: int) -> str:
    """``+0.4 %   1.2 s``: how far above what no placement can beat."""
    if row.height_bytes is None:
        return f"{'refused' if row.refusal else 'none found':>17}"
    return f"{100 * (row.height_bytes / bound - 1):>+8.2f} %{row.seconds:>5.1f} s"


TABLES = {
    "fx": (fx_rows, "fx graphs run by torch.fx.Interpreter, beside eager steps", tuple(MODELS)),
    "lifetimes": (lifetime_rows, "edges of the lifetime graph, beside those counted op by op", tuple(MODELS)),
    "methods": (
        method_rows,
        f"reuse-plan --method all: {STEP_SECONDS:g} s a method on a step, {HARD_SECONDS:g} s on minimalloc's",
        (*INSTANCES, *MODELS),
    ),
}


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (_, what, _) in TABLES.items():
        parser.add_argument(f"--{name}", nargs="*", metavar="NAME", help=what)
    options = parser.parse_args()
    print(f"{header()}  torch {torch.__version__}")
    for name, (rows, title, known) in TABLES.items():
        wanted = getattr(options, name)
        if wanted is None:
            continue
        print(f"\n{title}")
        started = time.perf_counter()
        try:
            for line in rows(wanted or known):
                print(line, flush=True)
        except MemplanError as error:
            print(error)
        print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
