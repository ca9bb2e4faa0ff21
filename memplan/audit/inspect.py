"""One file: read, looked through, excused, placed."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from memplan.audit.checks import allocator, attention, autograd, data, evaluation, hooks, model, pools, retained
from memplan.audit.code import Code
from memplan.audit.pool_records import NO_POOLS
from memplan.audit.pool_use import pools_in
from memplan.audit.records import Edit, FileAudit, Hit, Unread
from memplan.audit.source import Source, comments, read_source
from memplan.audit.suppress import excuse
from memplan.findings.records import Finding, Place, Priority, Severity
from memplan.findings.rules import AUDIT

_ABOUT_TORCH = re.compile(r"torch|lightning|accelerate|transformers|deepspeed|diffusers|\.backward\(")
_ABOUT_POOLS = re.compile(r"(?:Pool|Allocator|Arena|pool|arena|allocator)\b")
_COMMENTS = re.compile(r"#\s*(?:memplan:|noqa)", re.IGNORECASE)
SEVERITIES: Mapping[Priority, Severity] = {"high": "error", "medium": "warning", "low": "note"}
"""Priority of a rule → how its findings count."""
_CONTEXT = 1
"""Lines around a change in a diff: the file is at hand."""
CHECKS: Mapping[str, Callable[[Code], Iterator[Hit]]] = {
    "MA001": retained.running_total,
    "MA002": retained.container,
    "MA003": retained.attribute,
    "MA004": retained.meter,
    "MA005": retained.moving_average,
    "MA011": evaluation.gradients_on,
    "MA012": evaluation.left_in_eval,
    "MA013": evaluation.outputs_collected,
    "MA014": evaluation.unread_maps,
    "MA021": allocator.empty_cache,
    "MA022": allocator.collect,
    "MA023": allocator.retry_in_handler,
    "MA031": autograd.retained_graph,
    "MA032": autograd.cyclic_graph,
    "MA033": autograd.zeroed_in_place,
    "MA034": autograd.inputs_with_gradients,
    "MA035": autograd.anomaly_detection,
    "MA036": autograd.endless_recording,
    "MA041": model.deep_stack,
    "MA042": attention.written_out,
    "MA043": attention.eager_asked_for,
    "MA044": attention.cast_logits,
    "MA045": model.kept_in_forward,
    "MA046": model.cached,
    "MA047": model.data_parallel,
    "MA049": model.copied,
    "MA050": model.optimizer_in_loop,
    "MA051": hooks.registered_each_step,
    "MA052": hooks.stores_graph,
    "MA061": data.on_device_in_workers,
    "MA063": data.fetched_ahead,
    "MA064": data.loader_in_loop,
    "MA065": data.whole_data_set,
    "MA071": data.loaded_onto_gpu,
    "MA081": pools.not_given_back,
    "MA082": pools.never_used,
    "MA083": pools.unmatched_names,
}
NOT_IN_TESTS = frozenset({"MA011", "MA012", "MA013", "MA047", "MA071", "MA081"})
"""What does no harm in a unit test, which runs once and on little data."""
TOOLS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "mixed precision": "autocast GradScaler mixed_precision MixedPrecision amp bf16",
        "no_grad / inference_mode": "no_grad inference_mode",
        "checkpointing": "checkpoint_sequential gradient_checkpointing gradient_checkpointing_enable "
        "checkpoint_wrapper activation_checkpointing apply_activation_checkpointing use_reentrant",
        "fused attention": "scaled_dot_product_attention flash_attn flash_attn_func flex_attention xformers sdpa "
        "flash_attention_2",
        "sharding (FSDP, ZeRO)": "FSDP FullyShardedDataParallel fully_shard ZeroRedundancyOptimizer deepspeed",
        "pinned memory": "pin_memory non_blocking",
        "gradients set to None": "set_to_none",
        "gradient accumulation": "gradient_accumulation gradient_accumulation_steps accumulate_grad_batches grad_accum",
        "8-bit optimizers, quantised weights": "bitsandbytes bnb torchao load_in_8bit load_in_4bit AdamW8bit",
        "low-rank adapters": "LoraConfig get_peft_model",
        "CPU offload": "CPUOffload CPUOffloadPolicy cpu_offload offload_to_cpu save_on_cpu enable_model_cpu_offload",
        "memory-mapped loading": "mmap low_cpu_mem_usage safe_open init_empty_weights",
        "memory readings": "max_memory_allocated memory_reserved memory_allocated memory_summary mem_get_info "
        "_record_memory_history",
        "memplan": "memplan",
    }.items()
}
"""Tool → identifiers by which its use is known."""
_WORD = re.compile(r"\w+")


def inspect_file(path: Path, name: str, wanted: Collection[str]) -> FileAudit:
    """Look through one file, by its name in reports, for the rules of the wanted codes."""
    return inspect_source(read_source(path, name), wanted)


def inspect_source(source: Source, wanted: Collection[str]) -> FileAudit:
    """The same of what has been read."""
    text = "\n".join(source.lines)
    about_torch = _ABOUT_TORCH.search(text) is not None
    hits: list[Hit] = []
    unread: tuple[Unread, ...] = source.unread
    pools = NO_POOLS
    if source.tree is not None and (about_torch or _ABOUT_POOLS.search(text)):
        try:
            code = Code(source.tree, list(source.lines), source.file)
            rules = [rule for rule in CHECKS if rule in wanted and not (code.is_test and rule in NOT_IN_TESTS)]
            found = [each for rule in rules for each in CHECKS[rule](code)]
            pools = pools_in(code)
            hits = list({(each.code, each.line, each.column, each.message): each for each in found}.values())
        except RecursionError:
            unread += (Unread(file=source.file, cell=None, line=1, problem="nested too deeply"),)
    excused = excuse(hits, comments(source.lines) if _COMMENTS.search(text) and source.tree else {}, wanted)
    return FileAudit(
        file=source.file,
        lines=len(source.lines),
        findings=tuple(_finding(source, hit) for hit in excused.hits),
        suppressed=excused.suppressed,
        unread=unread,
        tools=tools_in(text),
        about_torch=about_torch,
        pools=pools,
    )


def _finding(source: Source, hit: Hit) -> Finding:
    cell, line = source.place(hit.line)
    _, end_line = source.place(hit.end_line)
    place = Place(
        file=source.file,
        cell=cell,
        line=line,
        column=hit.column + 1,
        end_line=end_line,
        end_column=hit.end_column + 1,
        text=source.lines[hit.line - 1] if source.lines else "",
    )
    return Finding(
        code=hit.code,
        severity=SEVERITIES[AUDIT[hit.code].priority],
        message=hit.message,
        place=place,
        fix=AUDIT[hit.code].remedy,
        diff=_diff(source, hit.edits) if cell is None else "",
    )


def _diff(source: Source, edits: Sequence[Edit]) -> str:
    if not edits:
        return ""
    before = [f"{line}\n" for line in source.lines]
    after = edited(source.lines, edits)
    name = source.file.replace("\n", "?").lstrip("/")
    return "".join(difflib.unified_diff(before, after.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=_CONTEXT))


def edited(lines: Sequence[str], edits: Sequence[Edit]) -> str:
    """A text with its edits made, the last one first so that places stay what they are."""
    text = "".join(f"{line}\n" for line in lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for each in sorted(edits, key=lambda one: (one.line, one.column), reverse=True):
        begin, end = starts[each.line - 1] + each.column, starts[each.end_line - 1] + each.end_column
        text = text[:begin] + each.text + text[end:]
    return text


def tools_in(text: str) -> frozenset[str]:
    """Tools that a text speaks of."""
    words = set(_WORD.findall(text))
    return frozenset(name for name, known in TOOLS.items() if known & words)
