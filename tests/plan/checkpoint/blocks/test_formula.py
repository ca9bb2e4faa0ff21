"""The law that everything rests on: the formula's curve is the traced one, under options that no trace has shown."""

import random

import pytest
import torch

from memplan.job.source import ModelSource
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.as_plan import plan_for
from memplan.plan.checkpoint.blocks.probe import menu
from memplan.plan.checkpoint.blocks.probe.build import build_problem, position_stretches
from memplan.plan.checkpoint.blocks.probe.cut import cut_like
from memplan.plan.checkpoint.blocks.probe.figures import true_peaks
from memplan.plan.checkpoint.blocks.probe.read import read
from memplan.plan.checkpoint.blocks.probe.run import Probing, planned_probe, probe
from memplan.plan.checkpoint.blocks.probe.tracer import Tracer
from memplan.plan.checkpoint.blocks.probe.traffic import Probe
from memplan.plan.checkpoint.blocks.problem.memory import position_bytes
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from tests.plan.checkpoint.blocks.steps import HUGGING_FACE, JOBS, Transformer, device, job, next_word, source, words

MOST_OVER = 0.005
"""Share by which the formula may be above a traced position."""


def measured(given: ModelSource, gpu: str, **options: object) -> tuple[Tracer, Probing, BlockProblem]:
    spec, profile = job(**options), device(gpu)
    tracer = Tracer(lambda: given, spec, profile)
    roofline = Roofline.of(profile, spec.precision)
    probing = probe(tracer, tracer.trace(), roofline, offload=False)
    return tracer, probing, build_problem(probing.probes, probing.kinds, probing.menus, roofline)


def check(problem: BlockProblem, probing: Probing, found: Probe) -> None:
    peaks = true_peaks(found)
    traced = [peaks[stretch] for stretch in position_stretches(probing.probes)]
    said = position_bytes(problem, BlockChoice(options=found.options))
    for position, true, formula in zip(problem.positions, traced, said, strict=True):
        assert true <= formula <= true * (1 + MOST_OVER), (position.name, found.options)


def check_all(given: ModelSource, gpu: str, **options: object) -> BlockProblem:
    tracer, probing, problem = measured(given, gpu, **options)
    for found in probing.probes:
        check(problem, probing, found)
    draw = random.Random(0)
    base = probing.probes[0]
    mixed = [draw.randrange(len(probing.menus[kind])) for kind in probing.kinds]
    fresh = planned_probe(tracer, base, probing.kinds, probing.menus, mixed)
    check(problem, probing, fresh)
    return problem


@pytest.fixture
def _few_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(menu, "MOST_SELECTIVE", 2)


@pytest.mark.usefixtures("_few_options")
@pytest.mark.parametrize(
    ("name", "gpu", "options", "is_chain"),
    [
        # A mask made before the first block is a constant to all of them.
        ("transformer", "cpu", {}, True),
        pytest.param(
            "transformer", "h100-80g", {"precision": "bf16-mixed", "grad_accum": 2}, True, marks=pytest.mark.slow
        ),
        ("residual", "h100-80g", {"precision": "bf16"}, True),
        ("unet", "cpu", {}, False),
        pytest.param("translator", "cpu", {}, False, marks=pytest.mark.slow),
    ],
)
def test_the_formula_is_the_traced_curve(name: str, gpu: str, options: dict[str, object], *, is_chain: bool) -> None:
    problem = check_all(JOBS[name](), gpu, **options)
    assert problem.chain == is_chain


@pytest.fixture(scope="module", params=["cpu", "h100-80g"])
def six(request: pytest.FixtureRequest) -> tuple[Tracer, Probing, BlockProblem, str]:
    """A chain of six blocks, measured once on each device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(menu, "MOST_SELECTIVE", 2)
        return *measured(source(lambda: Transformer(6), words, loss=next_word), request.param), request.param


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param(BlockChoice(options=(1, 1, 0, 1, 1, 0), segments=((0, 3), (3, 6))), marks=pytest.mark.slow),
        BlockChoice(options=(1, 1, 1, 1, 0, 0), segments=((0, 4), (0, 2))),
        # While a segment inside another first runs, who calls it holds its input.
        BlockChoice(options=(0, 1, 0, 1, 1, 1), segments=((0, 6), (2, 6), (4, 6))),
        pytest.param(
            BlockChoice(options=(0, 1, 0, 1, 1, 0), segments=((0, 6), (1, 5), (2, 4))), marks=pytest.mark.slow
        ),
    ],
)
def test_the_formula_knows_segments_that_no_probe_has_shown(
    choice: BlockChoice, six: tuple[Tracer, Probing, BlockProblem, str]
) -> None:
    tracer, probing, problem, gpu = six
    trace = tracer.trace(plan_for(problem, choice))
    reading = read(trace, cut_like(trace, probing.probes[0].reading.cut))
    peaks = true_peaks(Probe(reading=reading, options=choice.options))
    traced = [peaks[stretch] for stretch in position_stretches(probing.probes)]
    # On the CPU the states of the random generator that segments keep are made just before their first blocks.
    states = len(choice.segments) * torch.get_rng_state().nbytes if gpu == "cpu" else 0
    for position, true, formula in zip(problem.positions, traced, position_bytes(problem, choice), strict=True):
        early = states if position.block is None and position.phase == "forward" else 0
        assert true - early <= formula <= true * (1 + MOST_OVER), position.name
    step = trace.steps[-1]
    ops = trace.ops[step.first_op : step.end_op]
    # To copy those states takes time, too.
    near = 1e-6 if gpu != "cpu" else 0.02
    seconds = Roofline.of(device(gpu), "fp32").total(ops) - problem.step_seconds
    assert seconds == pytest.approx(extra_seconds(problem, choice), rel=near)


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["cpu", "h100-80g"])
@pytest.mark.parametrize("name", sorted(HUGGING_FACE))
def test_the_formula_is_the_traced_curve_of_hugging_face_models(name: str, gpu: str) -> None:
    check_all(HUGGING_FACE[name](), gpu, precision="fp32" if gpu == "cpu" else "bf16-mixed")
