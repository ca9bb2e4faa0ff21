"""What is run on a GPU: one row per workload, a target file or preset with its options in two sizes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memplan.job.spec import FileTarget, JobSpec, PresetTarget

ROOT = Path(__file__).parents[2]
OWN, ZOO, BLIND = "benchmarks/gpu/targets", "benchmarks/zoo", "benchmarks/zoo_blind"
SIZE_VARIABLE = "MEMPLAN_WORKLOAD_SIZE"
"""As in ``targets/sizes.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One row."""

    name: str
    """Its name in results."""
    kind: str
    """Class of workload, for summaries."""
    target: str
    """``preset:NAME``, or a file under the repository's root."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``JobSpec`` on a GPU."""
    tiny: Mapping[str, Any] = field(default_factory=lambda: {"batch_size": 2})
    """What replaces them where the benchmark itself is tried."""
    needs: tuple[str, ...] = ()
    """``cuda`` where no other device will do; else packages beside torch."""

    def spec(self, *, tiny: bool = False) -> JobSpec:
        """The job."""
        place = FileTarget(path=ROOT / self.target)
        preset = PresetTarget(name=self.target.removeprefix("preset:"))
        options = {**self.options, **(self.tiny if tiny else {})}
        return JobSpec(target=preset if self.target.startswith("preset:") else place, **options)


def set_size(*, tiny: bool) -> None:
    """Tell targets in child processes which size to build."""
    os.environ[SIZE_VARIABLE] = "tiny" if tiny else "full"


_HF, _PEFT, _CUDA = ("transformers",), ("transformers", "peft"), ("transformers", "cuda")
_WORDS = {"batch_size": 2, "seq_len": 32}


def _llama(
    name: str, *, kind: str = "llm", target: str = "llama", needs: tuple[str, ...] = _HF, **options: Any
) -> Workload:
    options = {"batch_size": 4, "seq_len": 1024, **options}
    tiny = dict(_WORDS, max_new_tokens=4) if options.get("mode") == "generate" else _WORDS
    return Workload(name=name, kind=kind, target=f"{OWN}/{target}.py", options=options, tiny=tiny, needs=needs)


def _plain(name: str, kind: str, target: str, **options: Any) -> Workload:
    return Workload(name=name, kind=kind, target=target, options=options)


def _images(name: str, target: str, *, kind: str = "cnn", **options: Any) -> Workload:
    return _plain(name, kind, target, **{"batch_size": 32, **options})


WORKLOADS = (
    _llama("llama-fp32"),
    _llama("llama-bf16", precision="bf16"),
    _llama("llama-bf16-mixed", precision="bf16-mixed"),
    _llama("llama-fp16-mixed", precision="fp16-mixed"),
    _llama("llama-fused", precision="bf16", optimizer="adamw", optimizer_impl="fused"),
    _llama("llama-foreach", precision="bf16", optimizer="adamw", optimizer_impl="foreach"),
    _llama("llama-loop", precision="bf16", optimizer="adamw", optimizer_impl="loop"),
    _llama("llama-sgd-momentum", precision="bf16", optimizer="sgd-momentum"),
    _llama("llama-adafactor", precision="bf16", optimizer="adafactor"),
    _llama("llama-lion", precision="bf16", optimizer="lion"),
    _llama("llama-accumulate-clip", precision="bf16-mixed", grad_accum=4, clip_grad_norm=1.0),
    _llama("llama-fp16-clip", precision="fp16-mixed", clip_grad_norm=1.0),
    _llama("llama-checkpoint", precision="bf16", checkpoint="full", batch_size=16),
    _llama("llama-checkpoint-mixed", precision="bf16-mixed", checkpoint="full", batch_size=16),
    _llama("llama-flash", kind="attention", precision="bf16", attention="flash", needs=_CUDA),
    Workload(
        name="gpt2-efficient",
        kind="attention",
        target="preset:gpt2",
        options={"batch_size": 8, "precision": "bf16", "attention": "efficient"},
        needs=_CUDA,
    ),
    _llama("llama-cudnn", kind="attention", precision="bf16", attention="cudnn", needs=_CUDA),
    _llama("llama-math", kind="attention", precision="bf16", attention="math"),
    _llama("llama-inference", kind="inference", precision="bf16", mode="inference", batch_size=16),
    _llama("llama-generate", kind="inference", precision="bf16", mode="generate", seq_len=128, max_new_tokens=32),
    _llama("llama-peft", kind="lora", target="llama_peft", precision="bf16", needs=_PEFT),
    _llama("llama-peft-mixed", kind="lora", target="llama_peft", precision="bf16-mixed", needs=_PEFT),
    _llama("mixtral", kind="moe", target="mixtral", precision="bf16", batch_size=8, seq_len=512),
    _plain("moe", "moe", f"{ZOO}/moe.py", batch_size=64),
    _plain("moe-capacity", "moe", f"{ZOO}/moe_capacity.py", batch_size=64),
    Workload(
        name="gpt2", kind="llm", target="preset:gpt2", options={"batch_size": 8, "precision": "bf16-mixed"},
        tiny={"batch_size": 1, "seq_len": 16}, needs=_HF,
    ),
    Workload(
        name="bert", kind="llm", target="preset:bert-base", options={"batch_size": 16, "precision": "fp16-mixed"},
        tiny={"batch_size": 1, "seq_len": 16}, needs=_HF,
    ),
    Workload(name="t5", kind="llm", target=f"{ZOO}/t5.py", options={"batch_size": 64}, needs=_HF),
    _images("resnet50", f"{OWN}/resnet50.py"),
    _images("resnet50-mixed", f"{OWN}/resnet50.py", precision="bf16-mixed"),
    _images("resnet50-channels-last", f"{OWN}/resnet50_channels_last.py"),
    _images("resnet50-channels-last-mixed", f"{OWN}/resnet50_channels_last.py", precision="fp16-mixed"),
    _images("resnet50-inference", f"{OWN}/resnet50.py", kind="inference", mode="inference", batch_size=128),
    _images("convnext-depthwise", f"{ZOO}/convnext.py", batch_size=128),
    _images("autoencoder", f"{ZOO}/autoencoder.py", batch_size=256),
    _images("unet", f"{ZOO}/unet.py"),
    _images("unet-mixed", f"{ZOO}/unet.py", precision="fp16-mixed"),
    _images("diffusion", f"{OWN}/diffusion.py", kind="diffusion", batch_size=16),
    _images("diffusion-mixed", f"{OWN}/diffusion.py", kind="diffusion", batch_size=16, precision="bf16-mixed"),
    _images("volumes-conv3d", f"{OWN}/volumes.py", batch_size=4),
    _images("gan", f"{ZOO}/gan.py", batch_size=256),
    _images("vit", f"{ZOO}/vit.py", kind="vit", batch_size=256),
    _images("vit-mixed", f"{ZOO}/vit.py", kind="vit", batch_size=256, precision="bf16-mixed", clip_grad_norm=1.0),
    _plain("transformer-encoder", "llm", f"{ZOO}/transformer_encoder.py", batch_size=128),
    _plain("lstm", "rnn", f"{ZOO}/lstm_lm.py", batch_size=128),
    _plain("lstm-mixed", "rnn", f"{ZOO}/lstm_lm.py", batch_size=128, precision="bf16-mixed"),
    _plain("gru", "rnn", f"{ZOO}/gru_classifier.py", batch_size=256),
    _plain("seq2seq", "rnn", f"{BLIND}/seq2seq.py", batch_size=128),
    _plain("lora", "lora", f"{ZOO}/lora.py", batch_size=64),
    _plain("recommender", "recommender", f"{ZOO}/recommender.py", batch_size=16_384),
    _plain("embeddings", "recommender", f"{OWN}/embeddings.py", batch_size=16_384),
    _plain("gnn", "other", f"{ZOO}/gnn.py", batch_size=64),
    _plain("mlp-big-batch", "mlp", f"{OWN}/mlp.py", batch_size=65_536),
    _plain("compiled", "compile", f"{OWN}/compiled.py", batch_size=16_384, compile="inductor"),
    _plain("checkpoint-dropout", "mlp", f"{ZOO}/checkpoint_nonreentrant.py", batch_size=16_384),
    _plain("dqn", "other", f"{BLIND}/dqn.py", batch_size=1024),
)  # fmt: skip
"""All of them; names are unique."""
