"""Which transformers architectures run a training step under fake tensors: a table per task, every failure named.

    python benchmarks/breadth.py [--task causal-lm] [--only NAME] [--jobs 2] [--timeout 60]

Each architecture is built from a tiny configuration (the shrinker below sets the size keys that it knows) and runs
forward, loss and backward under FakeTensorMode in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time
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
SMALL: Mapping[str, int] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "emb_dim", "word_embed_proj_dim"), 64
    ),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 128),
    "moe_intermediate_size": 32,
    "head_dim": 16,
    **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), 8),
}
LARGEST_VOCABULARY = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one architecture ended."""

    task: Task
    """The list of heads that it is in."""
    model_type: str
    """transformers' name of the architecture."""
    ended: str
    """``ok`` or the failure's class."""
    detail: str
    """The failure's first line and the line of code at which it was raised."""
    seconds: float
    """Wall time of its process."""


def shrink(config_class: Any) -> Any:
    """A tiny configuration: known size keys get small values, and the largest subset of them that builds is kept."""
    values = config_class().to_dict()
    smaller = {key: small for key, small in SMALL.items() if isinstance(values.get(key), int)}
    if isinstance(values.get("vocab_size"), int) and values["vocab_size"] > LARGEST_VOCABULARY:
        smaller["vocab_size"] = LARGEST_VOCABULARY
    for key, value in values.items():
        if key.endswith("token_id") and isinstance(value, int):
            smaller[key] = min(value, LARGEST_VOCABULARY - 1)
    config = config_class(**smaller)
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        # Published configurations all have one; some classes have no default.
        config.decoder_start_token_id = 0
    return config


def run_one(task: Task, model_type: str) -> None:
    """Run one architecture in this process and print its outcome as JSON."""
    import traceback

    import transformers
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    names = getattr(modeling_auto, MAPPINGS[task])[model_type]
    model_class = getattr(transformers, names if isinstance(names, str) else names[0])
    spec = JobSpec(target=PresetTarget(name=model_type), batch_size=BATCH, seq_len=TOKENS)
    try:
        config = shrink(CONFIG_MAPPING[model_type])
        source = source_of(model_class, config, task, spec=spec)
        with FakeTensorMode():
            model = source.model()
            batch = source.batch(BATCH, TOKENS)
            output = model(**batch)
            loss = output.loss
            loss.backward()
        ended, detail = "ok", ""
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "/transformers/models/" in frame.filename] or list(frames)
        ended = type(error).__name__
        detail = f"{str(error).strip().splitlines()[0][:150] if str(error).strip() else ''} @ {Path(own[-1].filename).name}:{own[-1].lineno}"
    print("OUTCOME " + json.dumps({"ended": ended, "detail": detail}))


def guarded(task: Task, model_type: str, timeout: float) -> Outcome:
    """Run one architecture in a child process that is ended after ``timeout`` seconds."""
    started = time.perf_counter()
    command = [sys.executable, "-W", "ignore", __file__, "--task", task, "--child", model_type]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        line = next((line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")), None)
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        outcome = json.loads(line[8:]) if line else {"ended": "Crash", "detail": last}
    except subprocess.TimeoutExpired:
        outcome = {"ended": "Timeout", "detail": f"longer than {timeout:.0f} s"}
    return Outcome(task=task, model_type=model_type, seconds=time.perf_counter() - started, **outcome)


def main() -> int:
    """Run the benchmark; the exit status says whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=MAPPINGS, action="append")
    parser.add_argument("--only")
    parser.add_argument("--child")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=90)
    options = parser.parse_args()
    if options.child:
        run_one(options.task[0], options.child)
        return 0
    from transformers.models.auto import modeling_auto

    cases = [
        (task, name)
        for task in options.task or MAPPINGS
        for name in getattr(modeling_auto, MAPPINGS[task])
        if options.only in (None, name)
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda case: guarded(*case, options.timeout), cases))
    return report(outcomes)


def report(outcomes: list[Outcome]) -> int:
    """Print one row per task, then every failure."""
    share = 0.0
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
