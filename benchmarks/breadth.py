"""Which transformers architectures run a training step under fake tensors: a table per task, every failure named.

    python benchmarks/breadth.py [--task causal-lm] [--only NAME] [--jobs 2] [--timeout 90]

Each architecture is built from a tiny configuration (the shrinker below sets the size keys that it knows) and runs
forward, loss and backward under FakeTensorMode in a process of its own.
"""

import argparse
import logging
import multiprocessing
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memplan.job.huggingface import source_of
from memplan.job.huggingface.tasks import Task
from memplan.job.spec import JobSpec, PresetTarget

MAPPINGS: Mapping[Task, str] = {
    "causal-lm": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "sequence-classification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "image-classification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
}
GOAL = 0.95
BATCH, TOKENS = 2, 32

# Size keys of configurations → a small value. Ratios between them are kept consistent: 4 heads of 16 make 64.
LAYERS: Mapping[str, int] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 2),
}
WIDTHS: Mapping[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim"), 64),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads", "num_kv_heads"), 4
    ),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 128),
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), 8),
    "word_embed_proj_dim": 64,
    "moe_intermediate_size": 32,
    "head_dim": 16,
}
# What published configurations always say and some classes leave at None.
UNSAID: Mapping[str, int] = {
    "num_experts_per_tok": 2,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_key_value_heads": 4,
    "head_dim": 16,
}
# What a published configuration of that architecture says and a training step cannot do without.
SAID: Mapping[str, Mapping[str, Any]] = {
    "xmod": {"default_language": "en_XX"},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
}
# Tried in order until one runs: some architectures derive further sizes from those that the shrinker knows.
LEVELS: Mapping[str, Mapping[str, int]] = {"tiny": {**LAYERS, **WIDTHS}, "shallow": LAYERS, "default": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one architecture ended."""

    task: Task
    """The list of heads that it is in."""
    model_type: str
    """transformers' name of the architecture."""
    level: str
    """How far the configuration was shrunk."""
    ended: str
    """``ok`` or the failure's class."""
    detail: str
    """The failure's first line and the line of code at which it was raised."""
    seconds: float
    """Wall time of its process."""


def shrink(config_class: Any, small: Mapping[str, int]) -> Any:
    """A configuration whose size keys, nested ones included, are no larger than the given values."""
    values = config_class().to_dict()
    unsaid = {key: value for key, value in UNSAID.items() if key in values and values[key] is None}
    said = SAID.get(config_class.model_type, {})
    config = config_class(**{**unsaid, **_smaller({**values, **unsaid}, small), **said})
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        # Published configurations all have one; some classes have no default.
        config.decoder_start_token_id = 0
    if getattr(config, "pad_token_id", None) is None:
        # Classifiers of several sequences need one, and published configurations of classifiers have it.
        config.pad_token_id = 0
    return config


def _smaller(values: Mapping[str, Any], small: Mapping[str, int]) -> dict[str, Any]:
    nested = {
        key: _smaller(value, small)
        for key, value in values.items()
        if key.endswith("_config") and isinstance(value, dict) and "model_type" in value
    }
    # A configuration's own type key tells composite models what to build.
    nested = {key: value | {"model_type": values[key]["model_type"]} for key, value in nested.items()}
    return nested | {key: min(size, values[key]) for key, size in small.items() if isinstance(values.get(key), int)}


def run_one(task: Task, model_type: str, sender: Any) -> None:
    """Run one architecture in this process and send its outcome; the least shrunk failure is the one told."""
    warnings.simplefilter("ignore")
    logging.disable()
    outcome = {}
    for level, small in LEVELS.items():
        outcome = {"level": level, **attempt(task, model_type, small)}
        if outcome["ended"] == "ok":
            break
    sender.send(outcome)


def attempt(task: Task, model_type: str, small: Mapping[str, int]) -> dict[str, str]:
    """Build one architecture and run forward, loss and backward on fake tensors."""
    import torch
    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    names = getattr(modeling_auto, MAPPINGS[task])[model_type]
    model_class = getattr(transformers, names if isinstance(names, str) else names[0])
    spec = JobSpec(target=PresetTarget(name=model_type), batch_size=BATCH, seq_len=TOKENS)
    # torch's fake kernel of the grouped product, which mixtures of experts use, knows no other dtype.
    torch.set_default_dtype(torch.bfloat16)
    try:
        source = source_of(model_class, shrink(CONFIG_MAPPING[model_type], small), task, spec=spec)
        with FakeTensorMode():
            source.model()(**source.batch(BATCH, TOKENS)).loss.backward()
    except Exception as error:  # noqa: BLE001 - whatever an architecture raises is a row of the table.
        return {"ended": type(error).__name__, "detail": where(error)}
    return {"ended": "ok", "detail": ""}


def where(error: Exception) -> str:
    """The first line of the message and the innermost line of model code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/transformers/models/" in frame.filename] or list(frames)
    said = (str(error).strip() or "no message").splitlines()[0]
    return f"{said[:140]} @ {Path(own[-1].filename).name}:{own[-1].lineno}"


def guarded(context: Any, task: Task, model_type: str, timeout: float) -> Outcome:
    """Run one architecture in a forked process that is ended after ``timeout`` seconds."""
    started = time.perf_counter()
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_one, args=(task, model_type, sender))
    process.start()
    sender.close()
    told = {"level": "", "ended": "Timeout", "detail": f"longer than {timeout:.0f} s"}
    if receiver.poll(timeout):
        try:
            told = receiver.recv()
        except EOFError:
            told = {"level": "", "ended": "Crash", "detail": "the process ended without a word"}
    process.kill()
    process.join()
    outcome = Outcome(task=task, model_type=model_type, seconds=time.perf_counter() - started, **told)
    print(f"{task:24} {model_type:28} {outcome.ended:28} {outcome.level:8} {outcome.seconds:5.1f} s", flush=True)
    return outcome


def main() -> int:
    """Run the benchmark; the exit status says whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=MAPPINGS, action="append")
    parser.add_argument("--only", action="append")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=90)
    options = parser.parse_args()
    from transformers.models.auto import modeling_auto

    cases = [
        (task, name)
        for task in options.task or MAPPINGS
        for name in getattr(modeling_auto, MAPPINGS[task])
        if options.only is None or name in options.only
    ]
    # The server imports the libraries once; every architecture then runs in a fork of it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._subclasses.fake_tensor", "transformers.modeling_utils"])
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda case: guarded(context, *case, options.timeout), cases))
    return report(outcomes)


def report(outcomes: list[Outcome]) -> int:
    """Print one row per task, then every failure."""
    print()
    for task in MAPPINGS:
        mine = [outcome for outcome in outcomes if outcome.task == task]
        if mine:
            passed = sum(outcome.ended == "ok" for outcome in mine)
            print(f"{task:26}{passed:5} of {len(mine):4}  {passed / len(mine):7.1%}")
    passed = sum(outcome.ended == "ok" for outcome in outcomes)
    share = passed / max(1, len(outcomes))
    print(f"{'all':26}{passed:5} of {len(outcomes):4}  {share:7.1%}\n")
    failed = [outcome for outcome in outcomes if outcome.ended != "ok"]
    for ended, count in Counter(outcome.ended for outcome in failed).most_common():
        print(f"{ended}: {count}")
        for outcome in failed:
            if outcome.ended == ended:
                print(f"  {outcome.task:24} {outcome.model_type:24} {outcome.detail}")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
