"""The answer's arithmetic: verdicts, intervals and sums."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import EstimateError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.options import OPTIONS
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.lifetime.build import build_lifetimes
from memplan.measure.advice import Attempt, TimedEstimate, advise
from memplan.measure.answer import judge
from memplan.measure.local import estimate_here
from memplan.measure.measurer import trace_for
from memplan.measure.played import play_idle, play_on_device
from memplan.measure.records import Verdict
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile
from memplan.replay.replay import replay_steps
from memplan.replay.stream import RequestStream, as_run, request_stream
from memplan.tracing.ledger import HELD_BACK
from memplan.tracing.records import Phase
from tests.measure.targets import LIMIT, TARGET
from tests.report.example_estimates import make_estimate


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    target = tmp_path / "net.py"
    target.write_text(TARGET)
    return JobSpec(target=parse_target(str(target)), batch_size=8192)


@pytest.mark.parametrize(
    ("device", "high", "usable", "retries", "verdict"),
    [
        (70, 75, 80, 0, Verdict.FITS),
        (70, 80, 80, 0, Verdict.FITS),
        (70, 81, 80, 0, Verdict.TIGHT),
        (80, 81, 80, 0, Verdict.TIGHT),
        (81, 82, 80, 0, Verdict.OOM),
        (70, 75, 80, 3, Verdict.TIGHT),
        (81, 82, 0, 0, Verdict.FITS),
    ],
)
def test_verdicts(device: int, high: int, usable: int, retries: int, verdict: Verdict) -> None:
    assert judge(device, high, usable, retries=retries) is verdict


def test_the_breakdown_sums_to_the_peak_and_the_interval_holds_it(spec: JobSpec) -> None:
    for answer in estimate_here(spec, [load_profile("h100-80g"), load_profile("t4"), load_profile("cpu")]):
        assert sum(answer.breakdown.values()) == answer.peak.device_bytes
        assert all(size >= 0 for size in answer.breakdown.values())
        assert answer.peak.low_bytes <= answer.peak.device_bytes <= answer.peak.high_bytes
        assert answer.peak.requested_bytes <= answer.peak.allocated_bytes <= answer.peak.reserved_bytes
        assert sum(owner.bytes for owner in answer.owners) == sum(
            size for name, size in answer.breakdown.items() if name not in ("fragmentation", "context")
        )


def test_a_cache_that_grows_with_every_step_is_said_and_never_fits_quietly(spec: JobSpec) -> None:
    """Of 8,000 rows, each of four blocks makes four tensors of 62.5 MiB: the wide layer's result, what follows it, and
    their gradients. Under this setting each takes a new segment of 64 MiB in every step."""
    job = dataclasses.replace(spec, batch_size=8000)
    (answer,) = estimate_here(job, [load_profile("h100-80g")], alloc_conf="max_split_size_mb:64")
    said = [each for each in answer.assumptions if "with every step" in each]
    assert "grows by 1.00 GiB with every step" in said[0]
    assert answer.verdict is Verdict.TIGHT
    assert answer.peak.high_bytes >= answer.gpu.usable_bytes
    (plain,) = estimate_here(job, [load_profile("h100-80g")])
    assert plain.verdict is Verdict.FITS
    assert not [each for each in plain.assumptions if "with every step" in each]


def play(stream: RequestStream) -> MemoryProfile:
    return replay_steps(stream.prefix, stream.step, stream.rename, policy=AllocatorPolicy())


def test_offloaded_blocks_come_back_late(spec: JobSpec, tmp_path: Path) -> None:
    """The copying stream holds the last five storages of the forward until the host has waited for the step: of the
    last offloaded block these are its input, 4 KiB a row, and what its layers and its GELU save, 8 and 8 KiB a row."""
    plan = tmp_path / "plan.json"
    blocks = [{"module": f"blocks.{index}", "action": "offload"} for index in range(4)]
    plan.write_text(json.dumps({"schema_version": "1.0", "blocks": blocks}))
    job = dataclasses.replace(spec, checkpoint=str(plan))
    (answer,) = estimate_here(job, [load_profile("h100-80g")], advice=False)
    assert HELD_BACK in answer.assumptions
    assert answer.peak.reserved_bytes - answer.peak.reserved_interval.low_bytes > 16 * 1024 * 8192
    # torch.cuda.max_memory_allocated counts what was freed no more, though it has not come back.
    trace = trace_for(job, load_profile("h100-80g"))
    assert trace.repeats
    late, at_once = (play(request_stream(each)) for each in (as_run(trace), trace))
    assert answer.peak.allocated_bytes == at_once.peak_allocated < late.peak_allocated
    assert answer.peak.reserved_bytes == late.peak_reserved > at_once.peak_reserved
    idle = play_idle(play_on_device(build_lifetimes(trace), load_profile("h100-80g")), load_profile("h100-80g"))
    assert idle.allocated < idle.memory.peak_allocated < late.peak_allocated
    (answer,) = estimate_here(job, [load_profile("cpu")], advice=False)
    assert HELD_BACK not in answer.assumptions


def test_parameters_and_arithmetic_of_a_step(spec: JobSpec) -> None:
    (answer,) = estimate_here(spec, [load_profile("a100-80g")])
    weights = 4 * 2 * 512 * 2048
    assert answer.parameters == answer.trainable_parameters == weights + 4 * (2048 + 512)
    assert answer.breakdown["parameter"] == 4 * answer.parameters
    # A linear layer costs 2*m*n*k forward and twice that backward; the first one needs no gradient for its input.
    assert answer.flops_per_step == 3 * 2 * 8192 * weights - 2 * 8192 * 512 * 2048


def test_a_card_that_is_too_small_gets_advice_that_fits(spec: JobSpec) -> None:
    sizes = {"usable_bytes": LIMIT, "total_bytes": LIMIT, "context_low_bytes": 0, "context_high_bytes": 0}
    small = dataclasses.replace(load_profile("t4"), **sizes)
    (answer,) = estimate_here(spec, [small])
    assert answer.verdict is Verdict.OOM
    changes = [advice.change for advice in answer.advice]
    assert "--checkpoint full" in changes
    assert any(change.startswith("--batch-size") for change in changes)
    assert all(advice.device_bytes <= LIMIT for advice in answer.advice)
    assert [advice.slowdown for advice in answer.advice] == sorted(advice.slowdown for advice in answer.advice)
    # Of a block, ``up`` runs again: ``down``'s result is needed by nothing, and recomputation stops before it. That is
    # 4 products more than the 4 * (2 forward + 4 backward) - 1 of the plain step, which take nearly all of its time.
    recompute = next(advice for advice in answer.advice if advice.change == "--checkpoint full")
    assert recompute.slowdown == pytest.approx(4 / 23, rel=0.02)


@given(st.integers(1, 4000), st.integers(10, 10**6), st.integers(0, 10**6))
def test_the_advised_batch_is_the_largest_that_fits(per_sample: int, usable: int, fixed: int) -> None:
    """With memory affine in the batch, secants find the very edge."""
    base = make_estimate()

    def attempt(spec: JobSpec) -> TimedEstimate:
        size = fixed + per_sample * spec.batch_size
        peak = dataclasses.replace(base.peak, device_bytes=size, low_bytes=size, high_bytes=size)
        verdict = judge(size, size, usable)
        gpu = dataclasses.replace(base.gpu, usable_bytes=usable)
        return TimedEstimate(spec, dataclasses.replace(base, peak=peak, verdict=verdict, gpu=gpu), 1.0)

    spec = JobSpec(target=parse_target("preset:x"), batch_size=512)
    given = attempt(spec)
    advice = [each for each in advise(given, attempt) if each.change.startswith("--batch-size")]
    fitting = [size for size in range(1, 512) if fixed + per_sample * size <= usable]
    if given.estimate.verdict is Verdict.FITS or not fitting:
        assert not advice
    else:
        assert [each.change for each in advice] == [f"--batch-size {max(fitting)}"]


def test_a_growing_step_is_answered_for_the_steps_that_were_traced(tmp_path: Path) -> None:
    target = tmp_path / "leak.py"
    leak = "def loss(output, batch):\n    KEPT.append(output)\n    return output.sum()\n"
    target.write_text(f"{TARGET}\nKEPT = []\n\n{leak}")
    (answer,) = estimate_here(JobSpec(target=parse_target(str(target)), batch_size=64), [load_profile("a10")])
    assert not answer.repeats
    assert answer.steps_traced == 5
    # The five outputs that were kept, and the activations of the last step.
    assert answer.breakdown["activation"] >= 5 * 64 * 512 * 4
    assert answer.peak.allocated_bytes < 300 << 20


def test_a_device_that_cannot_run_the_step_is_unknown_and_the_others_are_answered(tmp_path: Path) -> None:
    target = tmp_path / "attention.py"
    target.write_text(
        "import torch\n\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.qkv = torch.nn.Linear(64, 192)\n"
        "    def forward(self, x):\n"
        "        q, k, v = self.qkv(x).view(x.shape[0], 8, 3, 1, 64).unbind(2)\n"
        "        heads = (each.transpose(1, 2) for each in (q, k, v))\n"
        "        return torch.nn.functional.scaled_dot_product_attention(*heads)\n\n"
        "def model():\n    return Net()\n\n"
        "def batch(batch_size):\n    return torch.randn(batch_size, 8, 64)\n\n"
        "def loss(output, batch):\n    return output.sum()\n"
    )
    # Flash attention needs compute capability 8.0; the T4 has 7.5.
    spec = JobSpec(target=parse_target(str(target)), precision="bf16", attention="flash")
    turing, hopper = estimate_here(spec, [load_profile("t4"), load_profile("h100-80g")])
    assert turing.verdict is Verdict.UNKNOWN
    assert "flash" in turing.not_modelled[0]
    assert hopper.verdict is Verdict.FITS
    with pytest.raises(EstimateError, match="flash"):
        estimate_here(spec, [load_profile("t4"), load_profile("v100-16g")])


def affine(per_token: int, per_step: int, usable: int) -> Attempt:
    """Memory by samples and tokens, with gradients that stay where several batches make a step."""
    base = make_estimate()

    def attempt(spec: JobSpec) -> TimedEstimate:
        tokens = spec.batch_size * (spec.seq_len or 1024)
        size = (per_token * tokens + per_step * (spec.grad_accum > 1)) // (2 if spec.halved == "layers" else 1)
        if spec.halved in ("hidden", "experts"):
            raise UsageError("the configuration does not say")
        answer = dataclasses.replace(
            base,
            peak=dataclasses.replace(base.peak, device_bytes=size, low_bytes=size, high_bytes=size),
            verdict=judge(size, size, usable),
            breakdown={"activation": size},
            gpu=dataclasses.replace(base.gpu, usable_bytes=usable),
            options={"seq_len": str(spec.seq_len or 1024)},
            provenance={"halved": f"half the {spec.halved}: 8"} if spec.halved else {},
        )
        # Half the layers take half the time.
        return TimedEstimate(spec, answer, tokens * spec.grad_accum / (2 if spec.halved == "layers" else 1))

    return attempt


def advised(spec: JobSpec, attempt: Attempt) -> dict[str, float]:
    return {advice.change: advice.slowdown for advice in advise(attempt(spec), attempt)}


def test_a_batch_may_be_accumulated_and_a_sequence_cut() -> None:
    spec = JobSpec(target=parse_target("preset:x"), batch_size=12)
    found = advised(spec, affine(10, 0, 10 * 1024 * 5))
    # The largest batch is 5, of the parts of 12 the largest below is 4.
    assert found["--grad-accum 3 --batch-size 4"] == found["--batch-size 5"] == 0
    # 12 * 426 <= 5 * 1024 < 12 * 427; what leaves no more than a 64th of the device will do.
    (length,) = (int(change.rpartition(" ")[2]) for change in found if change.startswith("--seq-len"))
    assert 5 * 1024 * 63 / 64 <= 12 * length <= 5 * 1024
    assert found[f"--seq-len {length}"] == 0


def test_gradients_that_stay_between_batches_ask_for_smaller_parts() -> None:
    spec = JobSpec(target=parse_target("preset:x"), batch_size=8)
    found = advised(spec, affine(10, 10 * 1024, 10 * 1024 * 4))
    assert "--batch-size 4" in found
    assert "--grad-accum 4 --batch-size 2" in found


def test_a_smaller_model_is_the_last_advice() -> None:
    spec = JobSpec(target=parse_target("preset:x"), batch_size=1, seq_len=1, mode="inference", precision="bf16")
    assert advised(spec, affine(10, 0, 5)) == {"half the layers: 8": -0.5}
    assert "half" not in " ".join(advised(dataclasses.replace(spec, batch_size=4), affine(10, 0, 15)))


@pytest.mark.parametrize(
    ("phase", "kept", "hopeless"),
    [
        ("backward", "temporary", {"checkpoint", "optimizer_impl", "optimizer", "halved"}),
        ("backward", "activation", {"optimizer_impl", "optimizer", "halved"}),
        ("backward", "optimizer_state", {"checkpoint", "halved"}),
        ("optimizer", "temporary", {"halved"}),
    ],
)
def test_a_change_that_leaves_too_much_is_not_traced(phase: Phase, kept: str, hopeless: set[str]) -> None:
    base = make_estimate(breakdown={kept: 81 << 30, "activation" if kept != "activation" else "input": 1 << 30})
    base = dataclasses.replace(base, verdict=Verdict.OOM, peak=dataclasses.replace(base.peak, phase=phase))
    base = dataclasses.replace(base, gpu=dataclasses.replace(base.gpu, usable_bytes=20 << 30), options={})
    spec = JobSpec(target=parse_target("preset:x"), batch_size=1, precision="bf16")
    tried: set[str] = set()

    def attempt(changed: JobSpec) -> TimedEstimate:
        tried.update(name for name in OPTIONS if getattr(changed, name) != getattr(spec, name))
        return TimedEstimate(changed, base, 1.0)

    assert advise(TimedEstimate(spec, base, 1.0), attempt) == ()
    assert tried == {"checkpoint", "optimizer_impl", "optimizer", "halved"} - hopeless


@pytest.mark.parametrize(("constant", "traces"), [(1, 1), (4, 2)])
def test_a_length_far_below_is_found_in_few_traces_and_nearly_all_of_the_device_is_enough(
    constant: int, traces: int
) -> None:
    base, tried = affine(1, 0, 79 << 30), []

    def attempt(spec: JobSpec) -> TimedEstimate:
        tried.append(spec.seq_len)
        found = base(spec)
        # What does not grow with the length, so that the way through the origin ends above the device; and lengths are
        # padded, so that two of them may take the same.
        peak = found.estimate.peak
        size = -(-peak.device_bytes >> 20 << 20) + (constant << 30)
        verdict = judge(size, size, 79 << 30)
        peak = dataclasses.replace(peak, device_bytes=size, low_bytes=size, high_bytes=size)
        return found._replace(estimate=dataclasses.replace(found.estimate, peak=peak, verdict=verdict))

    spec = JobSpec(target=parse_target("preset:x"), seq_len=800 << 30, mode="inference", precision="bf16")
    given = attempt(spec)
    (found,) = advise(given, attempt)
    assert len(tried) == 1 + traces
    room = (79 - constant) << 30
    assert room - (79 << 30) / 64 <= int(found.change.removeprefix("--seq-len ")) <= room


@pytest.mark.slow
def test_half_the_layers_of_a_preset_are_half_its_blocks_parameters() -> None:
    pytest.importorskip("transformers")
    spec = JobSpec(target=parse_target("preset:gpt2"), batch_size=1, seq_len=16, mode="inference")
    (whole,) = estimate_here(spec, [load_profile("h100-80g")])
    (half,) = estimate_here(dataclasses.replace(spec, halved="layers"), [load_profile("h100-80g")])
    block = 12 * 768 * 768 + 13 * 768  # Two products of 4 and 8 h²; their biases, and two norms.
    assert whole.parameters - half.parameters == 6 * block
    assert half.provenance["halved"] == "half the layers: n_layer 6"
