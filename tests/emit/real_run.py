"""One optimizer step of a tiny Llama as a framework runs it, from emitted files; says what it did as JSON.

    real_run.py trainer|accelerate|deepspeed FOLDER

Run by ``test_real_runs.py`` in a process of its own, or in one for each rank.
"""

import json
import os
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS, WORDS = 16, 64


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def samples(count: int) -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    words = torch.randint(WORDS, (count, TOKENS))
    return [{"input_ids": row, "labels": row} for row in words]


def watched(model: torch.nn.Module) -> list[int]:
    """Batch sizes of the forwards of its first block that are not run again in backward, once it is called."""
    seen: list[int] = []
    model.get_input_embeddings().register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape[0]))
    return seen


def runs_again(model: torch.nn.Module) -> list[int]:
    """An entry for each forward of the last block's MLP: two for a micro-batch under checkpointing."""
    seen: list[int] = []
    model.model.layers[-1].mlp.register_forward_pre_hook(lambda *_: seen.append(1))
    return seen


def trainer(folder: Path) -> dict[str, object]:
    """transformers' own ``Trainer`` for one step, from ``training_args.json``."""
    from transformers import HfArgumentParser, Trainer, TrainingArguments  # noqa: PLC0415 - each framework in its own process.

    more = {"output_dir": str(folder / "out"), "use_cpu": True, "max_steps": 1, "report_to": "none",
            "save_strategy": "no", "disable_tqdm": True}  # fmt: skip
    content = json.loads((folder / "training_args.json").read_text()) | more
    (folder / "with_output.json").write_text(json.dumps(content))
    [arguments] = HfArgumentParser(TrainingArguments).parse_json_file(str(folder / "with_output.json"))
    model = tiny()
    sizes, again = watched(model), runs_again(model)
    trained = Trainer(model=model, args=arguments, train_dataset=samples(64))
    trained.train()
    optimizer = trained.optimizer.optimizer if hasattr(trained.optimizer, "optimizer") else trained.optimizer
    return {
        "sizes": sizes,
        "again": len(again),
        "optimizer": type(optimizer).__name__,
        "fused": optimizer.defaults.get("fused"),
        "steps": trained.state.global_step,
        "clips": arguments.max_grad_norm,
        "mixed": trained.accelerator.mixed_precision,
    }


def accelerate(folder: Path) -> dict[str, object]:
    """``Accelerator()`` as ``accelerate launch --config_file accelerate.yaml`` starts it."""
    from accelerate import Accelerator  # noqa: PLC0415 - each framework in its own process.

    accelerator = Accelerator(cpu=True)
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    batch = {name: value[None] for name, value in samples(1)[0].items()}
    accelerator.backward(model(**batch).loss)
    optimizer.step()
    return {
        "kind": accelerator.distributed_type.value,
        "ranks": accelerator.num_processes,
        "mixed": accelerator.mixed_precision,
        "wrapped": type(model).__name__,
        "states": len(optimizer.state),
    }


def deepspeed(folder: Path) -> dict[str, object]:
    """``deepspeed.initialize`` with ``ds_config.json``."""
    import deepspeed as library  # noqa: PLC0415 - each framework in its own process.

    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = library.initialize(model=model, optimizer=optimizer, config=str(folder / "ds_config.json"))
    size = engine.train_micro_batch_size_per_gpu()
    rows = samples(size)
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    for _ in range(engine.gradient_accumulation_steps()):
        engine.backward(engine(**batch).loss)
        engine.step()
    return {
        "stage": engine.zero_optimization_stage(),
        "sizes": [size] * engine.gradient_accumulation_steps(),
        "steps": engine.global_steps,
        "clips": engine.gradient_clipping(),
        "half": engine.bfloat16_enabled(),
        "ranks": engine.dp_world_size,
    }


if __name__ == "__main__":
    said = {"trainer": trainer, "accelerate": accelerate, "deepspeed": deepspeed}[sys.argv[1]](Path(sys.argv[2]))
    if os.environ.get("RANK", "0") == "0":
        Path(sys.argv[2], "said.json").write_text(json.dumps(said))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
