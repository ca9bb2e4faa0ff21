"""Plain PyTorch as code: the model set up and the training loop, on one GPU or under DistributedDataParallel."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from memplan.emit import code, quote, words
from memplan.job.setup_file import Setup
from memplan.job.spec import JobSpec

FILE = "train_setup.py"
_CARRIED = frozenset({
    "parallel", "precision", "optimizer", "optimizer_impl", "checkpoint", "lora", "compile", "grad_accum",
    "clip_grad_norm", "loss_chunks", "optimizer_in_backward", "offload_activations",
})  # fmt: skip


def render(setup: Setup, head: Sequence[str]) -> Mapping[str, str]:
    """``set_up(model)``, ``make_optimizer(model, lr)`` and ``train(model, optimizer, steps, loss)``."""
    return {FILE: _text(setup.job, head), **code.plan_files(setup.job)}


def notes(job: JobSpec, lost: Collection[str]) -> Iterator[str]:
    """What is left to the program."""
    yield from words.left_out(job, lost)
    yield from code.optimizer_note(job)


def _text(job: JobSpec, head: Sequence[str]) -> str:
    more = ["from torch.nn.parallel import DistributedDataParallel"] if job.parallel.data == "ddp" else []
    title = "Training as predicted: set_up(model), make_optimizer(model, lr), train(model, optimizer, steps, loss)."
    parts = [code.docstring(head, title), code.imports(job, *more), code.carried(job, _CARRIED), ""]
    parts += code.own_functions(job)
    return "\n".join([*parts, _set_up(job), "", code.optimizer_function(job), "", _train(job)])


def _set_up(job: JobSpec) -> str:
    body = code.setup_lines(job)
    body.append("model = model.to(device)")
    if job.parallel.data == "ddp":
        body.append("model = DistributedDataParallel(model)")
    body += code.compile_lines(job)
    body += ["offload_activations(model)"] if job.offload_activations else []
    head = ['def set_up(model, device="cuda"):', '    """Make of a new model what was predicted for, and place it."""']
    return "\n".join([*head, *(f"    {line}".rstrip() for line in [*body, "return model"])]) + "\n"


def _train(job: JobSpec) -> str:
    mixed, scaled = job.precision.endswith("-mixed"), job.precision == "fp16-mixed"
    share = f" / {job.grad_accum}" if job.grad_accum > 1 else ""
    loss = f"value = loss(model, batch){share}"
    lines = ["scaler = torch.amp.GradScaler(device)"] if scaled else []
    lines += ["for micro_batches in steps:", "    for batch in micro_batches:"]
    lines += [f"        with torch.autocast(device, dtype={code.DTYPES[job.precision]}):"] if mixed else []
    lines += [f"            {loss}" if mixed else f"        {loss}"]
    lines += ["        scaler.scale(value).backward()" if scaled else "        value.backward()"]
    if job.clip_grad_norm is not None:
        lines += ["    scaler.unscale_(optimizer)"] if scaled else []
        lines += [f"    torch.nn.utils.clip_grad_norm_(model.parameters(), {quote.python(job.clip_grad_norm)})"]
    lines += ["    scaler.step(optimizer)", "    scaler.update()"] if scaled else ["    optimizer.step()"]
    lines += ["    optimizer.zero_grad()"]
    head = [
        'def train(model, optimizer, steps, loss, device="cuda"):',
        f'    """Train. Each of ``steps`` yields {job.grad_accum} micro-batches of {job.batch_size}, on the host.',
        "",
        "    ``loss(model, batch)`` moves its batch to the device and returns a scalar. The prediction has output and",
        "    batch of a call live until the next, as a loop's own names do; who keeps neither needs no more.",
        '    """',
    ]
    return "\n".join([*head, *(f"    {line}" for line in lines)]) + "\n"
