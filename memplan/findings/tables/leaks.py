"""Causes of leaks."""

from memplan.findings.records import Rule

TABLE = (
    Rule(
        code="ML001",
        title="tensors with their graph in a container",
        meaning="A loss, an output or another tensor that has a grad_fn is put into a list or dict. Each brings "
        "its graph along, and what the graph saves unless backward has freed it.",
        remedy="Keep the number (loss.item(), every so many steps, for it waits for the device) or "
        "tensor.detach(); evaluate under torch.no_grad().",
    ),
    Rule(
        code="ML002",
        title="a graph that grows from step to step",
        meaning="One tensor is made from its own value of the step before (a recurrent state, a running total), so "
        "that its graph reaches back to the first step.",
        remedy="Cut it at the end of a step: state = state.detach() (truncated backpropagation through time), "
        "total += loss.detach().",
    ),
    Rule(
        code="ML003",
        title="hooks registered again and again",
        meaning="Hooks of a module or tensor are registered in the loop and never removed; each keeps what its "
        "function refers to.",
        remedy="Register once before the loop, or keep the handle and call handle.remove().",
    ),
    Rule(
        code="ML004",
        title="a container of tensors grows",
        meaning="A list or dict takes a tensor every so many steps and gives none back: a cache keyed by step, "
        "copies of weights, outputs kept for the end.",
        remedy="Give it a bound (collections.deque(maxlen=...), functools.lru_cache(maxsize=...)), move the "
        "tensors to the CPU or to disk, or reduce them to numbers at once.",
    ),
    Rule(
        code="ML005",
        title="reference cycles",
        meaning="Objects that refer to each other keep tensors until the garbage collector comes by, which may be "
        "late, and never where it is switched off.",
        remedy="Break the cycle (weakref, del in finally, no bound method of itself as attribute). Where the "
        "collector is off, call gc.collect() every some hundred steps.",
    ),
    Rule(
        code="ML006",
        title="exceptions that are kept",
        meaning="A caught exception is stored. Its traceback keeps the frames it went through, with all their "
        "variables.",
        remedy="Keep str(error) or traceback.format_exc(); or error.with_traceback(None).",
    ),
    Rule(
        code="ML007",
        title="optimizer that grows",
        meaning="Parameters are added to the optimizer in the loop (or its state is keyed by tensors made anew), "
        "each with gradient and state.",
        remedy="Build parameters and optimizer once; build a new optimizer where parameters are replaced.",
    ),
    Rule(
        code="ML008",
        title="metric that is never reset",
        meaning="An object with update and compute collects tensors every step.",
        remedy="Call reset() after every epoch, use a metric that keeps sums, or its option to keep on the CPU "
        "(compute_on_cpu in torchmetrics).",
    ),
    Rule(
        code="ML009",
        title="log records and writers that keep tensors",
        meaning="A tensor is an argument of a log record, or handed to a writer, which keeps it until it writes.",
        remedy="Log numbers: log.info('loss %.3f', loss.item()).",
    ),
    Rule(
        code="ML010",
        title="gradients with a graph",
        meaning="backward(create_graph=True) leaves gradients whose graph refers to their parameters: a cycle in "
        "C++ that no garbage collector sees.",
        remedy="Use torch.autograd.grad(..., create_graph=True), or set parameter.grad = None before the parameter "
        "is dropped.",
    ),
    Rule(
        code="ML011",
        title="a registry of the whole process",
        meaning="A class attribute, a variable of a library or a thread's local storage collects tensors, or "
        "objects that hold them.",
        remedy="Take entries out when their object ends, or hold them weakly (weakref.WeakSet, WeakValueDictionary).",
    ),
    Rule(
        code="ML012",
        title="tensor as attribute of an autograd context",
        meaning="A custom autograd function sets ctx.x = tensor. Such a tensor lives as long as the graph; if it "
        "is an output of the function, for ever.",
        remedy="Use ctx.save_for_backward(tensor).",
    ),
    Rule(
        code="ML013",
        title="module that grows",
        meaning="Modules, parameters or buffers are added to a model in the loop.",
        remedy="Build the model once; replace a submodule rather than add one.",
    ),
    Rule(
        code="ML014",
        title="tensors in closures",
        meaning="Functions made in the loop (callbacks, partials, lambdas) refer to tensors and are kept.",
        remedy="Pass numbers, or hold the tensor weakly.",
    ),
    Rule(
        code="ML015",
        title="a queue that fills",
        meaning="What produces batches is faster than what takes them, and the queue has no bound.",
        remedy="queue.Queue(maxsize=...); prefetch_factor of a DataLoader.",
    ),
    Rule(
        code="ML016",
        title="growth that no tensor explains",
        meaning="Memory grows, and no tensor that was born in the sampled steps is still there: native code, other "
        "threads, Python's own objects, or a leak less often than every sampled step.",
        remedy="Look at longer samples (sample=100); memray or heaptrack show native memory, tracemalloc Python's.",
    ),
    Rule(
        code="ML017",
        title="reserved memory grows, allocated does not",
        meaning="The caching allocator takes segments for the same tensors: fragmentation, not a leak.",
        remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; sizes that repeat; memplan simulate.",
    ),
    Rule(
        code="ML018",
        title="functools.cache of tensors",
        meaning="A cached function has tensors as arguments or results, and no bound: a tensor is equal to itself "
        "alone, so that nothing is ever found again.",
        remedy="lru_cache(maxsize=...), or keys that are numbers.",
    ),
    Rule(
        code="ML019",
        title="memory that stays",
        meaning="Tensors of long past steps stay; the chain says by whom they are kept, the cause has no name here.",
        remedy="Follow the chain from its first name.",
    ),
)
