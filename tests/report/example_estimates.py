"""Estimates made by hand, for the report and command-line tests."""

from dataclasses import replace

from memplan.measure.records import Advice, Estimate, Fragmentation, GpuFacts, Owner, PeakFacts, Verdict
from memplan.units import GIB, MIB

H100 = GpuFacts(name="h100-80g", title="NVIDIA H100 SXM5 80GB", total_bytes=85_014_544_384, usable_bytes=84_500_000_000)
A100 = GpuFacts(name="a100-40g", title="NVIDIA A100 SXM4 40GB", total_bytes=42_298_834_944, usable_bytes=41_900_000_000)
CPU = GpuFacts(name="cpu", title="CPU", total_bytes=0, usable_bytes=0)
BREAKDOWN = {
    "parameter": 15 * GIB,
    "gradient": 15 * GIB,
    "optimizer_state": 30 * GIB,
    "activation": 9 * GIB,
    "input": 32 * 1024,
    "buffer": 0,
    "temporary": 512 * MIB,
    "workspace": 32 * MIB,
    "fragmentation": 480 * MIB,
    "context": 500 * MIB,
}


def make_estimate(
    verdict: Verdict = Verdict.FITS, gpu: GpuFacts = H100, breakdown: dict[str, int] = BREAKDOWN, **changes: object
) -> Estimate:
    """A coherent estimate: the breakdown sums to the device peak."""
    device = sum(breakdown.values())
    outside = breakdown.get("context", 0)
    fields = {
        "target": "model.py:build",
        "verdict": verdict,
        "gpu": gpu,
        "parameters": 8_030_261_248,
        "trainable_parameters": 8_030_261_248,
        "options": {
            "batch_size": "8", "seq_len": "4096", "precision": "bf16", "optimizer": "adamw",
            "optimizer_impl": "foreach", "grad_accum": "4", "checkpoint": "none", "mode": "train",
            "attention": "auto", "data_dependent": "balanced",
        },
        "peak": PeakFacts(
            requested_bytes=device - outside - breakdown.get("fragmentation", 0),
            allocated_bytes=device - outside - breakdown.get("fragmentation", 0) // 2,
            reserved_bytes=device - outside,
            device_bytes=device,
            low_bytes=device - device // 50,
            high_bytes=device + device // 50,
            phase="backward",
            op="aten.mm.default",
            module="model.layers.31.mlp.down_proj",
            source="modeling_llama.py:176",
        ),
        "breakdown": breakdown,
        "owners": (
            Owner(module="lm_head", source="modeling_llama.py:512", category="activation", bytes=4 * GIB),
            Owner(module="model.layers.0.mlp", source="modeling_llama.py:176", category="parameter", bytes=900 * MIB),
            Owner(module="", source="model.py:41", category="temporary", bytes=512 * MIB),
        ),
        "fragmentation": Fragmentation(external=0.0066, internal=0.0012),
        "flops_per_step": 1_612_000_000_000_000,
        "advice": (),
        "assumptions": ("Successive batches have the same shape.",),
        "not_modelled": ("torch.compile",),
        "provenance": {
            "target": "TARGET", "batch_size": "--batch-size", "grad_accum": "--grad-accum", "optimizer": "model.py:14",
            "precision": "--precision", "seq_len": "config.json", "mode": "default", "attention": "default",
        },
        "timings": {"trace_seconds": 4.123, "replay_seconds": 0.25},
        "steps_traced": 3,
        "repeats": True,
        "torch_version": "2.13.0",
        "memplan_version": "0.1.0",
    }  # fmt: skip
    return Estimate(**(fields | changes))


FITS = make_estimate()
TIGHT = make_estimate(Verdict.TIGHT, replace(H100, usable_bytes=sum(BREAKDOWN.values()) + GIB))
OOM = make_estimate(
    Verdict.OOM,
    A100,
    advice=(
        Advice(change="--checkpoint full --batch-size 2", device_bytes=38 * GIB, slowdown=0.31),
        Advice(change="--optimizer adamw-8bit", device_bytes=47 * GIB, slowdown=0.0),
    ),
)
UNKNOWN = make_estimate(
    Verdict.UNKNOWN,
    assumptions=("The custom op flash_attn::varlen has no meta kernel.",),
    not_modelled=("custom op flash_attn::varlen",),
)
LONG = make_estimate(
    Verdict.OOM,
    replace(A100, name="a-profile-of-my-own-with-a-very-long-name-indeed"),
    target="/home/somebody/projects/a-long-folder/another-long-folder/training/models/llama.py:build_the_model",
    peak=replace(
        FITS.peak,
        module="model.language_model.transformer.encoder.layers.31.attention.self_attention.query_key_value",
        op="my_custom_library::a_custom_op_with_a_very_long_name.overload_number_two",
        source="/home/somebody/projects/a-long-folder/training/models/modeling_llama.py:1176",
    ),
    owners=(
        Owner(
            module="model.[bold]transformer[/bold].层.31." + "very_long_module_name." * 5 + "query_key_value",
            source="/home/somebody/projects/a-long-folder/training/models/modeling_llama.py:1176",
            category="activation",
            bytes=4 * GIB,
        ),
    ),
    advice=(Advice(change="checkpoint " + ", ".join(f"layers.{n}" for n in range(32)), device_bytes=GIB, slowdown=2),),
    not_modelled=("a very long phrase about something " * 4, "another"),
    assumptions=("a very long sentence about something else, " * 5,),
)
