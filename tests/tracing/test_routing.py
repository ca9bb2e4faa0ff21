"""How routers choose experts: laws of the loads, and real steps with routing forced to what is predicted."""

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.tracing.records import Trace
from memplan.tracing.routing import GINI, KINDS, Routing
from tests.support.libraries import library
from tests.tracing import moe_models
from tests.tracing.jobs import source, trace
from tests.tracing.moe_models import EXPERTS, TOKENS, TOP, WIDTH, Mixture
from tests.tracing.real_memory import peak, real_allocations
from tests.tracing.routers import indices_of
from tests.tracing.sharding import routed_ranks

transformers = library("transformers", "5.20")
SLACK = 64
"""Python numbers become one-element tensors inside C++, which no dispatch mode sees."""
FLAT = (moe_models.Dispatched, moe_models.Selected)
SKEWED = (Mixture, moe_models.OneHot, moe_models.Sorted, moe_models.Padded, moe_models.Dropping)


# ---------------------------------------------------------------------- loads


@st.composite
def routers(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """(tokens, experts, experts of a token, ranks)."""
    ranks, local = draw(st.integers(1, 8)), draw(st.integers(1, 32))
    experts = ranks * local
    return draw(st.integers(1, 5000)), experts, draw(st.integers(1, min(experts, 8))), ranks


@given(routers(), st.sampled_from(KINDS))
def test_no_token_is_lost_and_none_goes_twice_to_an_expert(router: tuple[int, int, int, int], kind: str) -> None:
    tokens, experts, top, ranks = router
    loads = Routing(kind=kind, ranks=ranks).loads(tokens * top, experts, top)
    assert len(loads) == experts
    assert sum(loads) == tokens * top
    assert 0 <= min(loads) <= max(loads) <= tokens


@given(routers())
def test_the_first_rank_gets_more_the_worse_it_is(router: tuple[int, int, int, int]) -> None:
    tokens, experts, top, ranks = router
    local = experts // ranks
    rows = [sum(Routing(kind=kind, ranks=ranks).loads(tokens * top, experts, top)[:local]) for kind in KINDS]
    # Even loads of a few tokens are rounded, and so are shares.
    assert rows[0] <= rows[1] + local <= rows[2] + 2 * local
    assert rows[2] == tokens * min(top, local)


def test_plausible_loads_have_the_measured_coefficient() -> None:
    loads = sorted(Routing(kind="plausible").loads(1_000_000, 1000, 1))
    ranked = sum((2 * place - len(loads) + 1) * load for place, load in enumerate(loads))
    assert ranked / (len(loads) * sum(loads)) == pytest.approx(GINI, abs=0.002)


def test_what_a_rank_of_eight_gets() -> None:
    shares = [sum(Routing(kind=kind, ranks=8).loads(80_000, 64, 2)[:8]) / 10_000 for kind in KINDS]
    assert shares == pytest.approx([1, 2.06, 8], abs=0.01)


def test_at_worst_every_expert_of_the_rank_has_a_gradient() -> None:
    assert Routing(kind="worst").loads(128, 8, 2) == (64, 58, 1, 1, 1, 1, 1, 1)
    assert Routing(kind="worst", ranks=2).loads(128, 8, 2) == (64, 62, 1, 1, 0, 0, 0, 0)
    assert Routing(kind="worst", ranks=8).loads(128, 8, 2)[:2] == (64, 10)


# ---------------------------------------------------------------------- real steps


def predicted(model: type[torch.nn.Module], kind: str) -> Trace:
    job = source(model, moe_models.batch, loss=moe_models.loss, optimizer=moe_models.sgd)
    return trace(job, data_dependent=kind)


def most(recorded: Trace) -> int:
    sizes = [storage.nbytes for storage in recorded.storages]
    return peak([sizes[key] if action == "alloc" else -sizes[key] for action, key, _ in recorded.events])


def real_peak(model: type[Mixture], loads: Sequence[int]) -> int:
    indices = indices_of(loads, TOP)

    def steps() -> None:
        module = model()
        with torch.no_grad():
            module.router.weight.copy_(torch.eye(EXPERTS, WIDTH))
        optimizer = moe_models.sgd(module.parameters())
        for _ in range(3):
            given_batch = None
            given_batch = moe_models.forced(indices)
            output = module(given_batch)
            loss = moe_models.loss(output, given_batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return peak(real_allocations(steps))


def loads_of(kind: str) -> tuple[int, ...]:
    return Routing(kind=kind).loads(TOKENS * TOP, EXPERTS, TOP)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", SKEWED, ids=lambda model: model.__name__)
def test_a_step_takes_what_is_predicted_however_tokens_are_routed(model: type[Mixture], kind: str) -> None:
    assert most(predicted(model, kind)) == pytest.approx(real_peak(model, loads_of(kind)), abs=SLACK)


@pytest.mark.parametrize("model", SKEWED, ids=lambda model: model.__name__)
def test_less_even_routing_takes_more(model: type[Mixture]) -> None:
    balanced, plausible, worst = (most(predicted(model, kind)) for kind in KINDS)
    assert balanced < plausible < worst


@pytest.mark.parametrize("model", FLAT, ids=lambda model: model.__name__)
def test_where_capacity_decides_sizes_every_routing_takes_the_same(model: type[Mixture]) -> None:
    (predicted_peak,) = {most(predicted(model, kind)) for kind in KINDS}
    for kind in KINDS:
        assert predicted_peak == pytest.approx(real_peak(model, loads_of(kind)), abs=SLACK)


@pytest.mark.slow
@pytest.mark.parametrize("model", [Mixture, moe_models.Sorted, moe_models.Padded], ids=lambda model: model.__name__)
def test_no_routing_takes_more_than_the_worst(model: type[Mixture]) -> None:
    bound, draw = most(predicted(model, "worst")), random.Random(0)
    for _ in range(25):
        scores = torch.randn(TOKENS, EXPERTS) + torch.tensor([draw.expovariate(0.5) for _ in range(EXPERTS)])
        found = torch.bincount(scores.topk(TOP).indices.flatten(), minlength=EXPERTS).tolist()
        shuffled = draw.sample(loads_of("worst"), EXPERTS)
        assert max(real_peak(model, found), real_peak(model, shuffled)) <= bound + SLACK


# ---------------------------------------------------------------------- transformers


@pytest.mark.parametrize("kernel", ["eager", "grouped_mm", "batched_mm"])
def test_mixtral_takes_what_is_predicted_by_each_of_its_kernels(kernel: str) -> None:
    job = source(
        lambda: routed_ranks.mixtral(kernel), routed_ranks.batch, optimizer=routed_ranks.sgd, default_seq_len=TOKENS
    )
    peaks = [most(trace(job, data_dependent=kind)) for kind in KINDS]
    for kind, found in zip(KINDS, peaks, strict=True):
        indices = indices_of(loads_of(kind), TOP)
        real = peak(real_allocations(lambda: routed_ranks.steps(kernel, indices, shared=False)))  # noqa: B023
        assert found == pytest.approx(real, abs=SLACK)
    # Rows of all experts together are as many whatever is chosen: only a loop minds.
    assert (len(set(peaks)) == 1) is (kernel != "eager")
