"""What is assumed of values that fake tensors do not have: routing, masks, conditions, numbers."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing._internal.distributed.fake_pg import FakeStore

from memplan.job.spec import DataDependent
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.routing import ANY, KINDS, SENTENCES, Routing
from memplan.tracing.scratch.cpu_table import CPU_RULES
from memplan.tracing.sharding.collectives import collectives_of_fakes
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world
from tests.tracing.jobs import source, trace

TOKENS, EXPERTS, TOP, WIDTH = 32, 8, 2, 4
EACH = TOKENS * TOP // EXPERTS
"""Tokens of each expert where all get the same share: 8."""


@contextlib.contextmanager
def recording(kind: DataDependent = "balanced") -> Iterator[Values]:
    values = Values(routing=Routing(kind=kind))
    with fake_world():
        recorder = Recorder(DeviceTraits(kind="cpu"), CPU_RULES, None, values)
        recorder.recording = True
        with recorder.watching():
            yield values


def chosen(tokens: int = TOKENS, experts: int = EXPERTS, top: int = TOP) -> torch.Tensor:
    """Which experts a router chooses for each token."""
    return torch.topk(torch.randn(tokens, experts).softmax(-1), top, dim=-1).indices


# ---------------------------------------------------------------------- mixtures of experts


def one_hot_and_where(x: torch.Tensor) -> list[int]:
    """Mixtral's loop before transformers 5."""
    mask = torch.nn.functional.one_hot(chosen(), EXPERTS).permute(2, 1, 0)
    return [len(x[torch.where(mask[expert])[1]]) for expert in range(EXPERTS)]


def equal_loop(x: torch.Tensor) -> list[int]:
    experts = chosen()
    return [len(x.repeat_interleave(TOP, 0)[experts.flatten() == expert]) for expert in range(EXPERTS)]


def any_of_a_token(x: torch.Tensor) -> list[int]:
    """DeepSeek's and MiniMind's loops: rows and weights of an expert are as many."""
    experts, weights = chosen(), torch.rand(TOKENS, TOP)
    rows = []
    for expert in range(EXPERTS):
        mask = experts == expert
        rows.append(x[mask.any(dim=-1).nonzero().flatten()] * weights[mask].view(-1, 1))
    return [len(each) for each in rows]


def bincount(_: torch.Tensor) -> list[int]:
    return torch.bincount(chosen().flatten(), minlength=EXPERTS).tolist()


def histogram(_: torch.Tensor) -> list[int]:
    return torch.histc(chosen().float(), bins=EXPERTS, min=0, max=EXPERTS - 1).int().tolist()


def scattered_gates(_: torch.Tensor) -> list[int]:
    """JetMoe."""
    gates = torch.zeros(TOKENS, EXPERTS).scatter(1, chosen(), 1)
    return gates.long().sum(0).tolist()


def put_gates(_: torch.Tensor) -> list[int]:
    """Megatron-LM where algorithms must be deterministic."""
    experts, rows = chosen(), torch.arange(TOKENS).unsqueeze(1)
    gates = torch.zeros(TOKENS, EXPERTS)
    gates.index_put_((rows, experts), torch.ones(TOKENS, TOP))
    return gates.bool().sum(0).tolist()


def one_hot_sum(_: torch.Tensor) -> list[int]:
    return torch.nn.functional.one_hot(chosen(), EXPERTS).sum(dim=(0, 1)).tolist()


@pytest.mark.parametrize(
    "routed",
    [one_hot_and_where, equal_loop, any_of_a_token, bincount, histogram, scattered_gates, put_gates, one_hot_sum],
    ids=lambda f: f.__name__,
)
def test_every_expert_gets_the_same_share(routed: Callable[[torch.Tensor], list[int]]) -> None:
    with recording() as values:
        assert routed(torch.randn(TOKENS, WIDTH)) == [EACH] * EXPERTS
    assert any("routed evenly" in sentence for sentence in values.assumptions)


def test_a_place_for_tokens_without_expert_stays_empty() -> None:
    with recording():
        counts = torch.nn.functional.one_hot(chosen(16, 4, 2), 5).sum(dim=(0, 1))
        # 16 tokens choose 2 of 4 experts: 8 for each of these, none for the fifth place.
        assert counts.tolist() == [8, 8, 8, 8, 0]
        assert (counts > 0).nonzero().flatten().tolist() == [0, 1, 2, 3]


def test_balanced_counts_lose_no_token_and_differ_by_one_at_most() -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.integers(1, 60), st.integers(2, 12), st.integers(1, 2))
    def law(tokens: int, experts: int, top: int) -> None:
        counts = torch.bincount(chosen(tokens, experts, top).flatten(), minlength=experts).tolist()
        assert len(torch.split(torch.randn(tokens * top, WIDTH), counts)) == experts
        assert sum(counts) == tokens * top
        assert max(counts) - min(counts) <= 1

    # Entering the fake world collects garbage, which is slow: once for all examples.
    with recording():
        law()


@pytest.mark.parametrize("kind", ["plausible", "worst"])
@pytest.mark.parametrize(
    "routed",
    [one_hot_and_where, equal_loop, any_of_a_token, bincount, histogram, scattered_gates, put_gates, one_hot_sum],
    ids=lambda f: f.__name__,
)
def test_every_expert_gets_its_load(routed: Callable[[torch.Tensor], list[int]], kind: DataDependent) -> None:
    loads = Routing(kind=kind).loads(TOKENS * TOP, EXPERTS, TOP)
    with recording(kind) as values:
        assert routed(torch.randn(TOKENS, WIDTH)) == list(loads)
    assert SENTENCES[kind] in values.assumptions


@pytest.fixture
def two_ranks() -> Iterator[None]:
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())  # type: ignore[no-untyped-call]
    with collectives_of_fakes():
        yield
    torch.distributed.destroy_process_group()


def gathered(part: torch.Tensor) -> torch.Tensor:
    everyones = torch.empty(2 * len(part), *part.shape[1:], dtype=part.dtype)
    torch.distributed.all_gather_into_tensor(everyones, part)
    return everyones


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.filterwarnings("ignore:.*all_gather_into_tensor.*:FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_what_two_ranks_gather_is_twice_what_one_has(kind: DataDependent) -> None:
    """Megatron-LM's dispatcher: tokens of all ranks, of which each takes what its experts get."""
    loads = Routing(kind=kind).loads(TOKENS * TOP, EXPERTS, TOP)
    with recording(kind):
        own = torch.zeros(TOKENS, EXPERTS).scatter(1, chosen(), 1).bool()
        everyones = gathered(own)
        assert everyones[:, :2].sum(0).tolist() == [2 * load for load in loads[:2]]
        assert len(torch.randn(2 * TOKENS, WIDTH)[everyones[:, 0]]) == 2 * loads[0]
        assert gathered(own.sum(0)).tolist() == [*loads, *loads]
        # Experts of both ranks one below the other: how many there are in all stays known.
        assert len(gathered(own.T.contiguous()).nonzero()) == 2 * TOKENS * TOP


def views_of_masks() -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """From (tokens, choices, experts) to the mask of the third expert."""
    return {
        "select": lambda mask: mask.select(-1, 2),
        "unbind": lambda mask: mask.unbind(-1)[2],
        "permuted": lambda mask: mask.permute(2, 1, 0)[2],
        "transposed": lambda mask: mask.transpose(0, 2)[2],
        "slice": lambda mask: mask[..., 2:3],
        "split": lambda mask: mask.split(1, dim=-1)[2],
        "split with sizes": lambda mask: mask.split([2, 1, EXPERTS - 3], dim=-1)[1],
        "flattened": lambda mask: mask.view(-1, EXPERTS)[:, 2],
        "unsqueezed": lambda mask: mask.unsqueeze(0).squeeze(0)[..., 2],
        "as numbers": lambda mask: mask.float().clone()[..., 2],
        "expanded": lambda mask: mask.expand(1, -1, -1, -1)[0, ..., 2],
    }


@pytest.mark.parametrize("name", views_of_masks())
def test_which_expert_a_view_of_a_mask_is_of_stays_known(name: str) -> None:
    load = Routing(kind="plausible").loads(TOKENS * TOP, EXPERTS, TOP)[2]
    with recording("plausible"):
        mask = torch.nn.functional.one_hot(chosen(), EXPERTS)
        assert len(views_of_masks()[name](mask).nonzero()) == load


def test_one_of_a_tokens_choices_may_be_any_experts() -> None:
    with recording("worst"):
        first = chosen()[:, 0]
        # All tokens but those that keep the other experts busy: none may choose an expert twice.
        assert len((first == 0).nonzero()) == TOKENS - EXPERTS + 1


def test_tokens_that_arrive_are_counted_by_their_expert() -> None:
    """transformers' exchange: two ranks send each of four experts what it gets."""
    with recording("worst"):
        counts = torch.zeros(EXPERTS, dtype=torch.long).scatter_add_(
            0, chosen(400).flatten(), torch.ones(800, dtype=torch.long)
        )
        experts = torch.arange(4).repeat(2).repeat_interleave(counts, output_size=800)
        assert torch.bincount(experts, minlength=4).tolist() == [401, 395, 2, 2]
        assert [len((experts == expert).nonzero()) for expert in range(5)] == [401, 395, 2, 2, 0]


def test_what_no_size_hangs_on_is_said() -> None:
    with recording() as values:
        torch.nn.functional.one_hot(chosen(), EXPERTS).float().mean()
        assert values.on_routing() == (ANY,)
        torch.randn(9)[torch.randn(9) > 0]
        assert values.on_routing() == (SENTENCES["balanced"],)
    with recording() as values:
        torch.nn.functional.one_hot(torch.randint(0, 50, (TOKENS,)), 50)
        assert values.on_routing() == ()


# ---------------------------------------------------------------------- masks


def test_a_mask_of_which_nothing_is_known_takes_every_element() -> None:
    with recording() as values:
        x = torch.randn(5, 7)
        assert x[x > 0].shape == (35,)
        assert x.masked_select(x > 0).shape == (35,)
        assert (x > 0).nonzero().shape == (35, 2)
    assert "masks and other data-dependent selections take every element" in values.assumptions


def test_what_is_known_is_counted() -> None:
    """timm's RegNets ask so for the widths of their stages."""
    with recording() as values:
        steps = torch.arange(8, dtype=torch.float32).div(3).floor()
        assert torch.unique(steps).tolist() == [0.0, 1.0, 2.0]
        assert [part.tolist() for part in torch.unique_consecutive(steps, return_counts=True)] == [[0, 1, 2], [3, 3, 2]]
        assert torch.bincount(steps.long(), minlength=5).tolist() == [3, 3, 2, 0, 0]
        assert torch.bincount(steps.long(), weights=torch.arange(8.0)).tolist() == [3.0, 12.0, 13.0]
    assert not values.assumptions


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_every_sequence_has_one_end(batch: int) -> None:
    """The heads of BART and T5 for classification."""
    with recording():
        ends = torch.randint(0, 1000, (batch, 16)).eq(2)
        assert torch.unique_consecutive(ends.sum(1)).numel() == 1
        hidden = torch.randn(batch, 16, WIDTH)
        assert hidden[ends, :].view(batch, -1, WIDTH).shape == (batch, 1, WIDTH)


def test_labels_outside_of_the_vocabulary_do_not_occur() -> None:
    with recording():
        labels = torch.randint(0, 50, (40, 40))
        assert labels[labels != -100].shape == (1600,)
        assert labels[labels == -100].shape == (0,)


def test_a_mask_and_its_inverse_share_the_elements() -> None:
    with recording():
        first = torch.rand(40, 10) < 0.25
        assert int(first.sum()) == 100
        assert int((~first).sum()) == 300
        assert first.logical_not().nonzero().shape == (300, 2)


def test_small_values_made_of_constants_are_known() -> None:
    with recording() as values:
        mask = torch.zeros(4, 6, dtype=torch.bool)
        mask[:, 0] = True
        assert mask.sum(1).tolist() == [1, 1, 1, 1]
        assert torch.randn(4, 6)[mask].shape == (4,)
        assert [rate.item() for rate in torch.linspace(0, 1, 5)] == [0, 0.25, 0.5, 0.75, 1]
        assert torch.arange(3).repeat_interleave(torch.tensor([2, 0, 3])).shape == (5,)
    assert not values.assumptions


# ---------------------------------------------------------------------- writing in place


WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "itself": lambda mask: mask.copy_(torch.randn(20, 20) > 0),
    "a slice": lambda mask: mask[:, 3:].copy_(torch.randn(20, 17) > 0),
    "the diagonal": lambda mask: mask.diagonal().copy_(torch.randn(20) > 0),
    "random numbers": lambda mask: mask[3].bernoulli_(),
    "an element": lambda mask: mask.__setitem__((0, 0), torch.randn(()) > 0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_writing_something_unknown_makes_a_tensor_and_its_views_unknown(
    write: Callable[[torch.Tensor], object],
) -> None:
    with recording():
        mask = torch.zeros(20, 20, dtype=torch.bool)
        flat = mask.view(400)
        assert mask.nonzero().shape == (0, 2)
        write(mask)
        assert mask.nonzero().shape == (400, 2)
        assert flat.nonzero().shape == (400, 1)


# ---------------------------------------------------------------------- conditions and numbers


CONDITIONS: dict[str, tuple[Callable[[], torch.Tensor], bool]] = {
    "any": (lambda: torch.any(torch.randn(9) > 3), False),
    "any along a dimension": (lambda: (torch.randn(9, 2) > 3).any(dim=0)[0], False),
    "any of a mask known to be true somewhere": (lambda: torch.any(chosen() == 0), True),
    "all": (lambda: torch.all(torch.randn(9) > 3), True),
    "all of a mask known to be false somewhere": (lambda: torch.all(chosen() == 0), False),
    "not a number": (lambda: torch.isnan(torch.randn(9)).any(), False),
    "finite": (lambda: torch.isfinite(torch.randn(9)).all(), True),
    "dropped seldom": (lambda: torch.rand([]) < 0.1, False),
    "dropped mostly": (lambda: torch.rand([]) < 0.9, True),
    "kept mostly": (lambda: torch.rand(1) >= 0.1, True),
    "random ones made of constants": (lambda: torch.any(torch.full((9,), 0.5).bernoulli() > 0), False),
    "a comparison": (lambda: torch.randn([]) > 3, True),
    "known": (lambda: torch.tensor(2) > 3, False),
}


@pytest.mark.parametrize(("ask", "answer"), CONDITIONS.values(), ids=list(CONDITIONS))
def test_conditions(ask: Callable[[], torch.Tensor], answer: bool) -> None:
    with recording():
        assert bool(ask()) is answer


def gradient_of_a_loss() -> torch.Tensor:
    """What a loss's own backward is given where nothing scales the loss: ones."""
    seen: list[torch.Tensor] = []
    loss = torch.randn(3, requires_grad=True).sum()
    loss.register_hook(seen.append)
    loss.backward()  # type: ignore[no-untyped-call]
    return seen[0]


@pytest.mark.parametrize("compare", [torch.equal, torch.allclose])
def test_tensors_are_compared_where_their_elements_are_known(
    compare: Callable[[torch.Tensor, torch.Tensor], bool],
) -> None:
    with recording() as values:
        assert compare(gradient_of_a_loss(), torch.tensor(1.0))
        assert not compare(gradient_of_a_loss(), torch.tensor(2.0))
        assert not compare(torch.zeros(1000), torch.ones(1000))
        assert compare(torch.tensor([1, 2]), torch.arange(1, 3))
        assert not values.assumptions
        assert not values.decisions.asked
        # Of what data made nothing is known but what is asked.
        assert compare(torch.randn(4), torch.randn(4))
        assert values.decisions.asked == 1
    with recording():
        assert not torch.equal(torch.zeros(3), torch.zeros(2))


def test_numbers_that_nobody_knows_are_one() -> None:
    with recording() as values:
        assert torch.randn(3)[1].item() == 1.0
        assert torch.ones(300).long()[1].item() == 1
        assert torch.tensor([3, 5])[1].item() == 5
    assert list(values.assumptions) == ["numbers read from tensors (.item()) are 1"]


# ---------------------------------------------------------------------- a whole job


def test_initialisation_that_rejects_samples_ends_and_schedules_are_read_in_set_up() -> None:
    rates: list[float] = []

    def model() -> torch.nn.Module:
        linear = torch.nn.Linear(WIDTH, 1)
        torch.nn.init.trunc_normal_(linear.weight, std=0.02)
        rates[:] = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
        return linear

    trace(source(model, lambda size: torch.randn(size, WIDTH)))
    assert rates == [0, 0.25, 0.5]


class Mixture(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(WIDTH, EXPERTS)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best = self.router(x).argmax(-1)
        return torch.cat([expert(x[best == index]) for index, expert in enumerate(self.experts)])


@pytest.mark.parametrize("option", SENTENCES)
def test_a_trace_says_what_it_assumed(option: DataDependent) -> None:
    given_source = source(Mixture, lambda size: torch.randn(size, WIDTH), loss=lambda output, _: output.mean())
    traced = trace(given_source, batch_size=TOKENS, data_dependent=option)
    assert [option] == [kind for kind, sentence in SENTENCES.items() if sentence in traced.assumptions]
    rows = Routing(kind=option).loads(TOKENS, EXPERTS, 1)[0]
    # Forward of one expert: two operations for each of its multiply-adds.
    forward = [
        op.flops for op in traced.ops if op.module.startswith("experts.0") and op.phase == "forward" and op.flops
    ]
    assert set(forward) == {2 * rows * WIDTH * WIDTH}


# ---------------------------------------------------------------------- positions


@pytest.mark.parametrize("tokens", [9, 2048])
def test_positions_beyond_a_table_are_refused_as_on_every_device(tokens: int) -> None:
    with recording():
        table = torch.nn.Embedding(tokens - 1, 4)
        assert table(torch.arange(tokens - 1)[None].expand(2, -1)).shape == (2, tokens - 1, 4)
        with pytest.raises(IndexError, match=f"index out of range in self: {tokens - 1}"):
            table(torch.arange(tokens)[None].expand(2, -1))


@pytest.mark.parametrize(
    "positions",
    [
        lambda: torch.arange(2048)[:100],
        lambda: torch.arange(2048).clamp_(max=99),
        lambda: torch.arange(2048) % 100,
        lambda: torch.arange(2048).split(100)[0],
        lambda: torch.arange(2047, -1, -1)[2000:],
        lambda: torch.arange(0, 1000, 10),
    ],
)
def test_positions_that_may_be_in_the_table_are_not(positions: Callable[[], torch.Tensor]) -> None:
    with recording():
        assert torch.nn.Embedding(1000, 4)(positions()).shape[1] == 4


@pytest.fixture
def suppression() -> Iterator[Callable[..., torch.Tensor]]:
    """torchvision's op: its own where its library is loaded, else one by the same name and schema."""
    with contextlib.ExitStack() as stack:
        if not hasattr(torch.ops.torchvision, "nms"):
            library = stack.enter_context(torch.library._scoped_library("torchvision", "FRAGMENT"))
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        yield torch.ops.torchvision.nms


def test_detectors_keep_every_box_and_say_so(suppression: Callable[..., torch.Tensor]) -> None:
    def loss(output: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        boxes = output.view(-1, 4)
        kept = suppression(boxes.detach(), boxes[:, 0].detach(), 0.7)
        sizes.append(len(kept))
        return boxes[kept[:100]].sum()

    sizes: list[int] = []
    job = source(lambda: torch.nn.Linear(8, 64), lambda size: torch.randn(size, 8), loss=loss)
    recorded = trace(job, batch_size=3)
    assert set(sizes) == {48}
    assert "other" in recorded.unsure
    assert any("keeps every box" in sentence for sentence in recorded.assumptions)
