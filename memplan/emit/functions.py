"""Functions that emitted Python defines, as text. They must run without memplan."""

REPEATED_BLOCKS = '''\
def repeated_blocks(model):
    """Yield the outermost modules whose ModuleList, ModuleDict or Sequential holds another of their class."""
    containers = (nn.ModuleList, nn.ModuleDict, nn.Sequential)

    def is_block(module):
        if type(module).forward is nn.Module.forward or next(module.children(), None) is None:
            return False
        return not isinstance(module, nn.Sequential) or next(repeated_blocks(module), None) is None

    children = list(model.children())
    kinds = [type(child) for child in children if isinstance(model, containers) and is_block(child)]
    for child in children:
        if kinds.count(type(child)) > 1 and is_block(child):
            yield child
        else:
            yield from repeated_blocks(child)
'''
CHECKPOINT_BLOCKS = '''\
def checkpoint_blocks(model):
    """Let every repeated block keep its inputs alone, and run again in backward."""
    for block in repeated_blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
'''
OWN_CHECKPOINTING = '''\
SWITCHES = ("activation_checkpointing_enable", "gradient_checkpointing_enable", "enable_gradient_checkpointing")


def checkpoint_blocks(model):
    """Let every repeated block keep its inputs alone, and run again in backward: by its library's switch, if it can."""
    switch = next((name for name in SWITCHES if hasattr(model, name)), None)
    if switch is not None:
        getattr(model, switch)()
        return
    for block in repeated_blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
'''
"""For models of transformers and diffusers, whose own switch was traced: it says what a block is."""
CACHE_OFF = '''\
def turn_cache_off(model):
    """Do as transformers' Trainer does: a cache of keys and values would live as long as the output."""
    if getattr(getattr(model, "config", None), "use_cache", False):
        model.config.use_cache = False
'''
CHUNKED_LOSS = '''\
def chunk_loss(model, chunks):
    """Make the logits of so many parts of the tokens one after another, and again in backward.

    The model then takes labels, and returns its loss alone. Nothing ever holds all logits.
    """
    body = getattr(model, model.base_model_prefix)

    def part(hidden, targets):
        logits = model.get_output_embeddings()(hidden).float()
        return functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")

    def forward(*, labels, **inputs):
        hidden = body(**inputs)[0]
        targets = functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous().view(-1)
        total = hidden.new_zeros((), dtype=torch.float32)
        parts = hidden.view(-1, hidden.shape[-1]).chunk(chunks)
        for some, their_targets in zip(parts, targets.chunk(chunks), strict=True):
            total = total + checkpoint(part, some, their_targets, use_reentrant=False)
        return CausalLMOutput(loss=total / (targets != -100).sum())

    model.forward = forward
'''
"""``--loss-chunks``, which is there for causal language models of transformers alone."""
IN_BACKWARD = '''\
class InBackward:
    """Update each parameter as soon as its gradient is whole, and free the gradient: one optimizer for each."""

    def __init__(self, parameters, make):
        self.optimizers = {parameter: make([parameter]) for parameter in parameters}
        for parameter in self.optimizers:
            parameter.register_post_accumulate_grad_hook(self._update)

    @property
    def param_groups(self):
        """Those of all of them, where the learning rate is set."""
        return [group for optimizer in self.optimizers.values() for group in optimizer.param_groups]

    def step(self):
        """Nothing is left to do: backward did it."""

    def zero_grad(self):
        """No gradient is left."""

    def state_dict(self):
        """States, in the order of the parameters."""
        return [optimizer.state_dict() for optimizer in self.optimizers.values()]

    def load_state_dict(self, states):
        """Take states back."""
        for optimizer, state in zip(self.optimizers.values(), states, strict=True):
            optimizer.load_state_dict(state)

    def _update(self, parameter):
        self.optimizers[parameter].step()
        self.optimizers[parameter].zero_grad()
'''
"""``--optimizer-in-backward``, as ``memplan.tracing.in_backward`` traces it."""
OFFLOAD = '''\
def offload_activations(model):
    """Let what forward saves for backward wait in pinned host memory: all but weights, buffers and small tensors."""
    running = []

    def is_plain(tensor):
        return tensor.layout is torch.strided and not hasattr(type(tensor), "__tensor_flatten__")

    def begin(module, _inputs):
        tensors = (*module.parameters(), *module.buffers())
        own = WeakSet(tensor.untyped_storage() for tensor in tensors if is_plain(tensor))
        leaving = deque(maxlen=5)

        def pack(tensor):
            if not is_plain(tensor) or tensor.nbytes < 1024 or tensor.untyped_storage() in own:
                return tensor
            leaving.append(tensor)
            copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
            return copy.copy_(tensor, non_blocking=True), tensor.device

        def unpack(packed):
            leaving.clear()
            if not isinstance(packed, tuple):
                return packed
            copy, device = packed
            return copy.to(device, non_blocking=True)

        running.append(torch.autograd.graph.saved_tensors_hooks(pack, unpack))
        running[-1].__enter__()

    def end(_module, _inputs, _output):
        running.pop().__exit__(None, None, None)

    model.register_forward_pre_hook(begin, prepend=True)
    model.register_forward_hook(end, always_call=True)
'''
"""``--offload-activations``, as ``memplan.tracing.offloaded`` traces it, with the limits that are named in
``memplan.runtime.checkpoint.offload``.

Hooks stand around those that gather shared weights, which must not be taken for activations.
"""
