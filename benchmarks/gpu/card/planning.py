"""Plans in force on a card: what they promise against the card's peak and clock."""

import functools
import gc
import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import memplan
from card.bench import GPU, TARGETS, Bench, Fact, Job, equal, figure, holds, near, spec_of
from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.measure.answer import compose
from memplan.measure.measurer import measure
from memplan.plan.checkpoint.ops.partitioner import JointPlan, budget_partitioner
from memplan.timing.clock import step_time

MIB = 2**20
PLANNED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"batch_size": 8, "seq_len": 1024, "precision": "bf16"}),
    "chain": ("chain", {"batch_size": 16_384}),
}
"""Jobs that are checkpointed."""
TINY: dict[str, dict[str, Any]] = {"llama": {"batch_size": 2, "seq_len": 32}, "chain": {"batch_size": 16}}
TIMED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-bf16-mixed": ("llama", {"batch_size": 4, "seq_len": 1024, "precision": "bf16-mixed"}),
    "llama-fp32": ("llama", {"batch_size": 4, "seq_len": 1024}),
    "resnet50-mixed": ("resnet50", {"batch_size": 32, "precision": "bf16-mixed"}),
    "mlp-big-batch": ("mlp", {"batch_size": 65_536}),
    "gpt2": ("preset:gpt2", {"batch_size": 8, "precision": "bf16-mixed"}),
}
"""Jobs whose step is timed."""
TINY_TIMED: dict[str, dict[str, Any]] = {
    "resnet50-mixed": {"batch_size": 2}, "mlp-big-batch": {"batch_size": 16},
    "gpt2": {"batch_size": 1, "seq_len": 16},
}  # fmt: skip
WAYS = ("plain", "again", "planned", "offloaded")


def _options(bench: Bench, name: str) -> tuple[str, dict[str, Any]]:
    target, options = PLANNED[name]
    return target, options | (TINY[name] if bench.tiny else {})


def plan(bench: Bench, name: str) -> Iterator[Fact]:
    """Make the plans of one job, without a card: the planner's own, and one that offloads every second block."""
    target, options = _options(bench, name)
    typed = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    path = TARGETS / f"{target}.py"
    plain, breakdown = _foretold(spec_of(target, **options))
    above = plain["device_bytes"] - sum(
        breakdown[each] for each in ("context", "parameter", "optimizer_state", "workspace")
    )
    kept = {"plain": plain | {"overhead": 0.0}}
    budget = int(plain["device_bytes"] - 0.3 * above)
    files = {way: bench.folder / f"plan-{name}-{way}.json" for way in WAYS[2:]}
    limits = ["--budget", f"{budget}B", "-o", files["planned"], "--time-limit", "5s"]
    told = bench.answer("checkpoint-plan", path, "--gpu", GPU, *typed, *limits, fine=(0, 3))
    prefix = "model.layers." if name == "llama" else ""
    blocks = [{"module": f"{prefix}{index}", "action": "offload"} for index in range(0, bench.pick(full=12, tiny=2), 2)]
    files["offloaded"].write_text(json.dumps({"schema_version": "1.0", "blocks": blocks}), "utf-8")
    for way, file in files.items():
        kept[way], _ = _foretold(spec_of(target, **options, checkpoint=str(file)))
        kept[way]["overhead"] = kept[way]["seconds"] / plain["seconds"] - 1
    kept["planned"] |= {
        "budget": budget, "result": told["result"], "promise": told["peak_after_bytes"],
        "actions": sorted({block["action"] for block in json.loads(files["planned"].read_text("utf-8"))["blocks"]}),
        "promised_overhead": told["overhead_ratio"],
    }  # fmt: skip
    bench.keep(f"plan-{name}.json", kept)
    yield equal(f"{name}: the promise is what is estimated", told["peak_after_bytes"], kept["planned"]["device_bytes"])
    yield figure(f"{name}: plans", kept)


def _foretold(spec: JobSpec) -> tuple[dict[str, Any], dict[str, int]]:
    """Peaks and seconds of a step, and what makes up the peak."""
    profile = load_profile(GPU)
    measured = measure(spec, profile)
    estimate, time_of_step = compose(spec, profile, measured), step_time(measured.lifetimes.trace, spec, profile)
    names = ("requested_bytes", "allocated_bytes", "reserved_bytes", "device_bytes")
    peaks = {name: int(getattr(estimate.peak, name)) for name in names}
    return peaks | {"seconds": time_of_step.total}, {str(key): int(value) for key, value in estimate.breakdown.items()}


def plan_llama(bench: Bench) -> Iterator[Fact]:
    """Of the Llama."""
    yield from plan(bench, "llama")


def plan_chain(bench: Bench) -> Iterator[Fact]:
    """Of the chain."""
    yield from plan(bench, "chain")


def checkpoint_llama(bench: Bench) -> Iterator[Fact]:
    """The Llama under its plans."""
    yield from _checkpointed(bench, "llama")


def checkpoint_chain(bench: Bench) -> Iterator[Fact]:
    """The chain under its plans."""
    yield from _checkpointed(bench, "chain")


def _checkpointed(bench: Bench, name: str) -> Iterator[Fact]:
    kept = bench.kept(f"plan-{name}.json", wait=90)
    target, options = _options(bench, name)
    steps: dict[str, float] = {}
    parameters: dict[str, list[torch.Tensor]] = {}
    for way in WAYS:
        found = kept["plain" if way == "again" else way]
        file = bench.folder / f"plan-{name}-{way}.json"
        change = functools.partial(memplan.apply, plan=file) if way in ("planned", "offloaded") else None
        job = Job(spec_of(target, **options), bench.device, change)
        with bench.alone():
            if bench.cuda:
                # The workspace that the job before left is this one's to make.
                torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001
                gc.collect()
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                yield equal(f"{name}, {way}: bytes of the job before", torch.cuda.memory_allocated(), 0)
            for _ in range(3):
                job.step()
            bench.wait()
            parameters[way] = [parameter.detach().cpu().clone() for parameter in job.model.parameters()][:20]
            stats = bench.stats()
            steps[way] = bench.seconds(job.step, 7)
            del job
            gc.collect()
        if bench.cuda:
            for what in ("requested", "allocated", "reserved"):
                peak = stats[f"{what}_bytes.all.peak"]
                yield near(f"{name}, {way}: {what} peak", found[f"{what}_bytes"], peak, 0.01)
        yield figure(
            f"{name}, {way}: plan", {key: found.get(key) for key in ("budget", "actions", "result", "promise")}
        )
        yield near(f"{name}, {way}: seconds of a step", found["seconds"], steps[way], 0.2)
        if way in ("planned", "offloaded"):
            ratio = steps[way] / steps["plain"] - 1
            yield near(f"{name}, {way}: extra time", found["overhead"], ratio, 0.25)
        repeats = all(map(torch.equal, parameters["plain"], parameters.get("again", parameters["plain"])))
        same = all(map(torch.equal, parameters["plain"], parameters[way]))
        worst = max(
            float((one - two).abs().max()) for one, two in zip(parameters["plain"], parameters[way], strict=True)
        )
        note = f"largest difference {worst:.3g}; the plain step repeats itself: {repeats}"
        yield holds(f"{name}, {way}: parameters after three steps, bit for bit", same or not repeats, same, note=note)


def graphs(bench: Bench) -> Iterator[Fact]:
    """`plan_graph` and `plan_arena` on a card."""
    torch.manual_seed(0)
    width = bench.pick(full=4096, tiny=32)
    rows = bench.pick(full=8192, tiny=8)
    perceptron = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(6)))
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True, norm_first=True)
    convolutions = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten())
    models = {
        "perceptron": (perceptron, torch.randn(rows, width)),
        "transformer": (nn.Sequential(layer), torch.randn(8, 128, 256)),
        "convolutions": (convolutions, torch.randn(4, 3, 64, 64)),
    }
    for name, (model, example) in models.items():
        yield from _graph(bench, name, model.to(bench.device).eval(), example.to(bench.device))
    yield from _arena(bench)


def _graph(bench: Bench, name: str, model: nn.Module, example: torch.Tensor) -> Iterator[Fact]:
    with torch.no_grad():
        try:
            arena = memplan.plan_graph(model, example)
            guarded = memplan.plan_graph(model, example, guard=True)
        except Exception as error:  # noqa: BLE001 - what it cannot is to be known.
            yield Fact(what=f"plan_graph: {name}", memplan=f"{type(error).__name__}: {error}"[:500], agrees=False)
            return
        other = torch.randn_like(example)
        expected = model(other)
        for way, graph in (("plain", arena), ("guarded", guarded)):
            found = graph(other)
            exact = torch.equal(found, expected)
            # Its fused way of inference is not exported, so that it differs in the last bits (docs/reuse-plan.md).
            known = name == "transformer"
            yield holds(f"plan_graph: {name}, {way}: equal to the model, bit for bit", exact or known, exact)
            close = torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
            yield equal(f"plan_graph: {name}, {way}: close to the model", close, True)
        del found
        yield figure(f"plan_graph: {name}: height, copied", [getattr(arena, "height", None), str(arena.copied)])
        if bench.cuda:
            peaks = []
            for body in (model, arena):
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                result = body(other)
                torch.cuda.synchronize()
                peaks.append(torch.cuda.max_memory_allocated() - before)
                del result
            yield figure(f"plan_graph: {name}: bytes beyond what was alive, of the model and in the arena", peaks)
            yield figure(
                f"plan_graph: {name}: ms",
                [1000 * bench.seconds(lambda body=body: body(other), 10) for body in (model, arena)],
            )


def _arena(bench: Bench) -> Iterator[Fact]:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).to(bench.device)

    def step() -> None:
        model(torch.randn(32, 64, device=bench.device)).square().mean().backward()
        model.zero_grad(set_to_none=True)

    said: list[str] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("memplan").addHandler(listener)
    try:
        arena = memplan.plan_arena(step)
        with arena:
            step()
        bench.wait()
        yield figure(
            "plan_arena of a step on the card",
            str(arena.counts),
            note=f"height {arena.plan.height}" if hasattr(arena, "plan") else "",
        )
    except MemplanError as error:
        yield figure("plan_arena of a step on the card", f"refused: {error.what}")
        return
    yield equal("plan_arena says that it holds CPU tensors alone", any("CUDA" in line for line in said), bench.cuda)


def compiled(bench: Bench) -> Iterator[Fact]:
    """The partitioner in Inductor on a card: bytes alive against the plan's."""
    torch.manual_seed(0)
    width, rows = bench.pick(full=2048, tiny=64), bench.pick(full=8192, tiny=256)
    blocks = [
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        for _ in range(4)
    ]
    model = nn.Sequential(*blocks).to(bench.device)
    batch = torch.randn(rows, width, device=bench.device)

    def loss(batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(batch).sin().square().mean()
        return result

    budget, gradients = 10**15, []
    for label in ("no budget", "70 % of what is above the fixed bytes"):
        plans: list[JointPlan] = []
        torch._dynamo.reset()  # noqa: SLF001
        began = time.perf_counter()
        partitioner = budget_partitioner(budget, time_limit=3, tell=plans.append)
        settings = {"custom_partitioner_fn": partitioner, "force_disable_caches": True}
        with torch._inductor.config.patch(settings):  # noqa: SLF001
            call = torch.compile(loss, dynamic=False, fullgraph=True)
            call(batch).backward()
        bench.wait()
        compile_seconds = time.perf_counter() - began
        [joint] = plans
        model.zero_grad(set_to_none=True)
        if bench.cuda:
            yield from _compiled_peak(label, call, batch, model, joint)
        call(batch).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        pairs = zip(gradients[0], gradients[-1], strict=True)
        close = all(torch.allclose(one, two, rtol=1e-3, atol=1e-5) for one, two in pairs)
        yield equal(f"compiled, {label}: gradients as without", close, True)
        taken = 1000 * bench.seconds(lambda call=call: call(batch).backward(), 7)
        yield figure(f"compiled, {label}: ms of a step; seconds to compile", [taken, compile_seconds])
        model.zero_grad(set_to_none=True)
        fixed = joint.problem.graph.fixed_bytes
        budget = fixed + int(0.7 * (joint.unplanned.peak_bytes - fixed))


def _compiled_peak(
    label: str, call: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor, model: nn.Module, joint: JointPlan
) -> Iterator[Fact]:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    result = call(batch)
    result.backward()
    torch.cuda.synchronize()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    del result
    model.zero_grad(set_to_none=True)
    figures = getattr(joint.result, "figures", None)
    promised = figures.peak_bytes - joint.problem.graph.fixed_bytes if figures else None
    note = "above what lives when the step begins; Inductor fuses, so that it may take less than the plan says"
    yield holds(
        f"compiled, {label}: peak is not above the plan's",
        promised is not None and peak <= 1.01 * promised,
        promised,
        peak,
        note,
    )


def predictions(bench: Bench) -> Iterator[Fact]:
    """Seconds of steps, foretold without a card."""
    found, profile = {}, load_profile(GPU)
    for name, (target, options) in TIMED.items():
        spec = _timed_spec(bench, name, target, options)
        try:
            foretold = step_time(measure(spec, profile).lifetimes.trace, spec, profile)
            found[name] = {"total": foretold.total, "compute": foretold.compute, "launch": foretold.launch}
        except MemplanError as error:
            found[name] = {"error": str(error)[:300]}
        bench.keep("times.json", found)
        yield figure(f"{name}: foretold", found[name])
    bench.keep("times-whole.json", found)


def _timed_spec(bench: Bench, name: str, target: str, options: dict[str, Any]) -> Any:
    words = {"batch_size": 2, "seq_len": 32} if "seq_len" in options else {}
    return spec_of(target, **(options | ((words or TINY_TIMED[name]) if bench.tiny else {})))


def times(bench: Bench) -> Iterator[Fact]:
    """Seconds of steps: foretold against CUDA's events."""
    foretold = bench.kept("times-whole.json", wait=90)
    for name, (target, options) in TIMED.items():
        job = Job(_timed_spec(bench, name, target, options), bench.device)
        with bench.alone():
            for _ in range(4):
                job.step()
            bench.wait()
            taken = bench.seconds(job.step, 7)
            # Without waiting for each: the CPU may be ahead.
            began = time.perf_counter()
            for _ in range(7):
                job.step()
            bench.wait()
            running = (time.perf_counter() - began) / 7
            del job
            gc.collect()
        note = f"within 20 %; one by one, by events: {taken:.5f}; {foretold[name]}"
        yield near(f"{name}: seconds of a step", foretold[name].get("total"), running, 0.2, note)
