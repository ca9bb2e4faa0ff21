"""The jobs: what is typed, and the frameworks that each winner is written for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One call of ``memplan recommend``."""

    name: str
    """What it is called in the table."""
    preset: str
    """The model."""
    gpu: str
    """Profile."""
    gpus: int
    """How many."""
    words: str
    """What else is typed."""
    formats: tuple[str, ...]
    """``memplan emit --to``."""

    @property
    def typed(self) -> list[str]:
        """The command's arguments, but for its files."""
        device = ["--gpu", self.gpu, "--gpus", str(self.gpus)]
        return [f"preset:{self.preset}", *device, *self.words.split()]


_FULL = "--precision bf16 --seq-len 4096 --batch-size 1 --checkpoint full"
_MIXED = "--precision bf16-mixed --seq-len 4096 --batch-size"
_LORA = "--lora r=16,alpha=32,targets=all-linear --seq-len 2048 --batch-size 1 --checkpoint full"
_ONE = ("torch", "hf", "axolotl")
_SHARDED = ("fsdp2", "accelerate")


def _llama(size: str, gpu: str, gpus: int, batch: int, *more: str) -> Job:
    """A full fine-tune over several GPUs; a card is called by its GB."""
    memory = {"rtx-4090": 24, "a100-40g": 40, "h100-80g": 80}[gpu]
    name = f"{size} full, {gpus} x {memory} GB"
    words = f"{_MIXED} {batch} --parallel fsdp={gpus}"
    return Job(name=name, preset=f"llama-3.1-{size.lower()}", gpu=gpu, gpus=gpus, words=words, formats=_SHARDED + more)


def _alone(name: str, gpu: str, words: str, formats: tuple[str, ...] = _ONE, preset: str = "llama-3.1-8b") -> Job:
    return Job(name=name, preset=preset, gpu=gpu, gpus=1, words=words, formats=formats)


JOBS = (
    _alone("8B full, 1 x 24 GB", "rtx-4090", _FULL),
    _alone("8B, 1 x 24 GB, numerics free", "rtx-4090", f"{_FULL} --allow precision,optimizer,lora,quantize"),
    _alone("8B full, 1 x 40 GB", "a100-40g", _FULL),
    _alone("8B, 1 x 40 GB, optimizer free", "a100-40g", f"{_FULL} --allow optimizer"),
    _alone("8B full, 1 x 80 GB", "a100-80g", _FULL),
    _llama("8B", "rtx-4090", 4, 1),
    _llama("8B", "a100-40g", 4, 1, "hf"),
    _llama("8B", "h100-80g", 4, 2, "axolotl"),
    _llama("8B", "rtx-4090", 8, 1),
    _llama("8B", "a100-40g", 8, 1),
    _llama("8B", "h100-80g", 8, 2, "hf", "torchtitan"),
    Job(
        name="8B ZeRO-3, 8 x 80 GB",
        preset="llama-3.1-8b",
        gpu="h100-80g",
        gpus=8,
        words="--precision bf16 --seq-len 4096 --batch-size 1 --parallel zero3=8 --keep parallel",
        formats=("deepspeed", "accelerate", "hf", "axolotl"),
    ),
    _llama("70B", "h100-80g", 8, 1),
    _llama("70B", "h100-80g", 16, 1),
    _llama("70B", "h100-80g", 64, 2, "torchtitan"),
    Job(
        name="MoE 30B-A3B, 8 x 80 GB",
        preset="qwen3-30b-a3b",
        gpu="h100-80g",
        gpus=8,
        words="--precision bf16-mixed --seq-len 2048 --batch-size 1 --parallel fsdp=8",
        formats=_SHARDED,
    ),
    _alone("SDXL UNet, 1 x 80 GB", "a100-80g", "--precision bf16-mixed --batch-size 8", ("torch", "hf"), "sdxl-unet"),
    Job(
        name="SDXL UNet, 4 x 40 GB",
        preset="sdxl-unet",
        gpu="a100-40g",
        gpus=4,
        words="--precision bf16-mixed --batch-size 4 --parallel ddp=4",
        formats=_SHARDED,
    ),
    _alone("ViT-L, 1 x 24 GB", "rtx-4090", "--precision bf16-mixed --batch-size 128", ("torch", "hf"), "vit-l-16"),
    _alone("8B LoRA, 1 x 24 GB", "rtx-4090", f"--precision bf16 {_LORA}"),
    _alone("8B QLoRA, 1 x 24 GB", "rtx-4090", f"--precision bf16-mixed --quantize nf4 {_LORA}", ("hf", "axolotl")),
)
