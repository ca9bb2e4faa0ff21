"""Let the framework itself load what was emitted, and say in memplan's words what it understood.

    python load.py FORMAT FILE RANKS

Prints JSON: ``release``, and what it ``says`` by fields of ``JobSpec`` (``ranks``: of ``Parallel``).
"""

import argparse
import importlib
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

Says = dict[str, Any]


def deepspeed(file: Path, ranks: int) -> Says:
    """Its configuration of one of so many ranks, which checks its three batch sizes against each other."""
    module = importlib.import_module("deepspeed.runtime.config")
    module.dist = SimpleNamespace(get_rank=lambda *_: 0, get_world_size=lambda *_: ranks)
    config = module.DeepSpeedConfig(json.loads(file.read_text(encoding="utf-8")))
    return {
        "batch_size": config.train_micro_batch_size_per_gpu,
        "grad_accum": config.gradient_accumulation_steps,
        "clip_grad_norm": config.gradient_clipping or None,
        "half": "bf16" if config.bfloat16_config.enabled else "fp16" if config.float16_config.enabled else "none",
        "data": f"zero{int(config.zero_config.stage)}",
    }


def accelerate(file: Path, ranks: int) -> Says:
    """The arguments of ``accelerate launch`` once it has read its file, as it has them before it starts anything."""
    launch = importlib.import_module("accelerate.commands.launch")
    args = launch.launch_command_parser().parse_args(["--config_file", str(file), "train.py"])
    args = launch._validate_launch_command(args)[0]  # noqa: SLF001 - what launching does first.
    said: Says = {"ranks": args.num_processes}
    if args.use_deepspeed:
        return said | {"data": deepspeed(file.parent / args.deepspeed_config_file, ranks)["data"]}
    said["half"] = {"no": "none"}.get(args.mixed_precision, args.mixed_precision)
    if args.use_fsdp:
        said |= {"data": f"fsdp{args.fsdp_version}", "offload": _true(args.fsdp_offload_params)}
        said |= {"checkpointed": _true(args.fsdp_activation_checkpointing)}
        said |= {"reshard": _true(args.fsdp_reshard_after_forward)}
    return said


def hf(file: Path, _ranks: int) -> Says:
    """``TrainingArguments`` by the parser that refuses keys it does not know; the folder of results is the user's."""
    transformers = importlib.import_module("transformers")
    content = json.loads(file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "training_args.json"
        whole.write_text(json.dumps(content | {"output_dir": folder, "use_cpu": True}), encoding="utf-8")
        parser = transformers.HfArgumentParser(transformers.TrainingArguments)
        [found] = parser.parse_json_file(str(whole))
    said: Says = {
        "batch_size": found.per_device_train_batch_size,
        "grad_accum": found.gradient_accumulation_steps,
        "clip_grad_norm": found.max_grad_norm or None,
        "half": "bf16" if found.bf16 else "fp16" if found.fp16 else "none",
        "checkpointed": bool(found.activation_checkpointing),
    }
    if plugin := found.fsdp_plugin_args if found.fsdp else None:
        said |= {"data": f"fsdp{plugin['fsdp_version']}", "checkpointed": plugin["activation_checkpointing"]}
        said |= {"offload": plugin.get("cpu_offload", False), "reshard": plugin["reshard_after_forward"]}
    if found.deepspeed:
        said |= {"data": f"zero{found.hf_deepspeed_config.config['zero_optimization']['stage']}"}
    return said


def axolotl(file: Path, _ranks: int) -> Says:
    """Its own model of its file; datasets and a learning rate are the user's."""
    schema = importlib.import_module("axolotl.utils.schemas.config")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    found = schema.AxolotlInputConfig(**content, datasets=[{"path": "a", "type": "alpaca"}], learning_rate=1e-4)
    if unknown := set(content) - {*schema.AxolotlInputConfig.model_fields}:
        raise ValueError(f"unknown keys: {unknown}")
    said: Says = {
        "batch_size": found.micro_batch_size,
        "grad_accum": found.gradient_accumulation_steps,
        "clip_grad_norm": found.max_grad_norm or None,
        "seq_len": found.sequence_len,
        "half": "bf16" if found.bf16 else "fp16" if found.fp16 else "none",
        "checkpointed": bool(found.gradient_checkpointing),
    }
    if found.fsdp_config:
        said |= {"data": f"fsdp{found.fsdp_version}", "offload": bool(found.fsdp_config.offload_params)}
        said |= {"checkpointed": bool(found.fsdp_config.activation_checkpointing), "ranks": found.dp_shard_size}
    return said


def torchtitan(file: Path, _ranks: int) -> Says:
    """The configuration that the function makes of one of its own."""
    registry = importlib.import_module("torchtitan.models.llama3.config_registry")
    found = runpy.run_path(str(file))["configure"](registry.llama3_8b())
    mesh = found.parallelism
    ranks = mesh.data_parallel_replicate_degree * mesh.data_parallel_shard_degree * mesh.tensor_parallel_degree
    return {
        "batch_size": found.training.local_batch_size,
        "seq_len": found.training.seq_len,
        "ranks": ranks,
        "offload": found.training.enable_cpu_offload,
        "checkpointed": found.activation_checkpoint is not None,
    }


def code(file: Path, _ranks: int) -> Says:
    """Its functions; the target file that is traced calls them."""
    sys.path.insert(0, str(file.parent))
    if not callable(runpy.run_path(str(file))["make_optimizer"]):
        raise TypeError("make_optimizer is no function")
    return {}


LOADERS: Mapping[str, tuple[str, Callable[[Path, int], Says]]] = {
    "deepspeed": ("deepspeed", deepspeed),
    "accelerate": ("accelerate", accelerate),
    "hf": ("transformers", hf),
    "axolotl": ("axolotl", axolotl),
    "torchtitan": ("torchtitan", torchtitan),
    "torch": ("torch", code),
    "fsdp2": ("torch", code),
}
"""``--to`` → distribution and loader."""


def main() -> None:
    """Load one file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("format", choices=LOADERS)
    parser.add_argument("file", type=Path)
    parser.add_argument("ranks", type=int)
    given = parser.parse_args()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.chdir(given.file.parent)
    package, load = LOADERS[given.format]
    said = load(given.file, given.ranks)
    print(json.dumps({"release": f"{package} {version(package)}", "says": said}))


def _true(value: object) -> bool:
    return str(value).lower() in ("true", "1", "full_shard")


if __name__ == "__main__":
    main()
