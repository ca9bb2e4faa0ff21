"""Every hazard that the audit knows."""

from memplan.findings.records import AuditRule

TABLE = (
    # What outlives its step.
    AuditRule(
        code="MA001",
        priority="high",
        confidence="high",
        title="running total keeps every step's graph",
        meaning="A loss with history is added to a total that lives from step to step, so the graph of every step "
        "stays alive. backward() frees what the graph saved, not the graph: 135 kB a step for 96 layers, "
        "measured with torch 2.13; without a backward pass all activations stay, too.",
        remedy="Add a number or a detached tensor: total += loss.detach(), and .item() once where it is printed.",
    ),
    AuditRule(
        code="MA002",
        priority="high",
        confidence="high",
        title="container keeps every step's graph",
        meaning="Losses or outputs with history are put, step after step, into a list, deque or dict that "
        "outlives the step, and nothing empties it within the loop.",
        remedy="Keep loss.item() or loss.detach(); outputs .detach().cpu().",
    ),
    AuditRule(
        code="MA003",
        priority="medium",
        confidence="medium",
        title="object keeps a step's graph until the next",
        meaning="A loss or output with history is kept as an attribute in a training step, so it is still there "
        "while the next forward pass builds its own: both are in memory at the peak.",
        remedy="Keep a detached tensor, or set the attribute to None once the step is done.",
    ),
    AuditRule(
        code="MA004",
        priority="medium",
        confidence="medium",
        title="meter or log takes a loss with its graph",
        meaning="A loss with history is handed to a meter or log. A meter that sums or stores what it gets keeps "
        "every step's graph; one that does not still waits for the GPU.",
        remedy="Hand over loss.item() or loss.detach().",
    ),
    AuditRule(
        code="MA005",
        priority="high",
        confidence="medium",
        title="running statistic drags its graph along",
        meaning="A moving average is made of itself and of a tensor with history, with gradients on: each value "
        "hangs on the one before it, back to the first step.",
        remedy="Update it under torch.no_grad(), or from .detach().",
    ),
    # Evaluation.
    AuditRule(
        code="MA011",
        # Not high: what turns gradients off may stand in another file. In a blind count 12 of 15 were false.
        priority="medium",
        confidence="low",
        title="evaluation records gradients",
        meaning="A function that evaluates calls the model with gradients on and never goes backward: every "
        "activation is saved for nothing, as in training.",
        remedy="Put @torch.no_grad() or @torch.inference_mode() above the function, or the loop into a with block.",
    ),
    AuditRule(
        code="MA012",
        priority="low",
        confidence="medium",
        title="model stays in evaluation mode while training",
        meaning="eval() within a training loop, and no train() in the function: from then on dropout is off, and "
        "models that checkpoint only if self.training save every activation.",
        remedy="Call model.train() after the evaluation.",
    ),
    AuditRule(
        code="MA013",
        priority="medium",
        confidence="medium",
        title="outputs pile up on the device",
        meaning="Whole outputs of the model are collected over a data loader without leaving the GPU: memory "
        "grows with the data set.",
        remedy="Move each to the host (.cpu()), or keep only what is needed of it (argmax, a sum, a metric's state).",
    ),
    AuditRule(
        code="MA014",
        priority="medium",
        confidence="medium",
        title="hidden states or attention maps that nobody reads",
        meaning="output_hidden_states=True or output_attentions=True in a loop over data, in a file that never "
        "reads them: all layers' tensors live until the output goes; attention maps are quadratic in the "
        "sequence, and rule out fused attention.",
        remedy="Leave the argument out.",
    ),
    # The allocator.
    AuditRule(
        code="MA021",
        priority="medium",
        confidence="high",
        title="cache emptied in every step",
        meaning="empty_cache() in every step gives segments back that the next step asks for again: cudaMalloc "
        "and cudaFree wait for the GPU. It does not make room for PyTorch itself.",
        remedy="Take it out; against fragmentation set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    ),
    AuditRule(
        code="MA022",
        priority="low",
        confidence="medium",
        title="garbage collected in every step",
        meaning="gc.collect() in every step walks all Python objects. Tensors go by reference count; that a "
        "collection helps means there are reference cycles.",
        remedy="Take it out and look for the cycle, or collect every few hundred steps.",
    ),
    AuditRule(
        code="MA023",
        priority="medium",
        confidence="high",
        title="retry inside the out-of-memory handler",
        meaning="The step is run again within the except block. Until that ends, the exception holds the frames "
        "of the failed step, and with them its tensors.",
        remedy="Only note the failure in the handler; free and retry after it.",
    ),
    # Autograd.
    AuditRule(
        code="MA031",
        priority="medium",
        confidence="medium",
        title="graph retained after its last backward pass",
        meaning="retain_graph=True in the only, or last, backward pass of its function: the saved activations "
        "stay until the loss goes.",
        remedy="Leave it out where no other backward pass goes through this graph; add losses up to go backward once.",
    ),
    AuditRule(
        code="MA032",
        priority="medium",
        confidence="high",
        title="backward(create_graph=True) makes a reference cycle",
        meaning="Parameters and gradients then refer to each other, and the graph of the step leaks unless .grad "
        "is reset (PyTorch warns of it).",
        remedy="Use torch.autograd.grad(…, create_graph=True), or set .grad to None after the step.",
    ),
    AuditRule(
        code="MA033",
        priority="medium",
        confidence="high",
        title="gradients zeroed in place",
        meaning="zero_grad(set_to_none=False) keeps all gradients allocated through the forward pass.",
        remedy="Use the default, set_to_none=True, unless a CUDA graph needs fixed addresses.",
    ),
    AuditRule(
        code="MA034",
        priority="low",
        confidence="medium",
        title="inputs require gradients that nobody reads",
        meaning="A batch is made to require gradients in a function that never reads an input's gradient: the "
        "first layers save more, and a gradient of the input's size is made.",
        remedy="Leave requires_grad of inputs off.",
    ),
    AuditRule(
        code="MA035",
        priority="medium",
        confidence="high",
        title="anomaly detection left on",
        meaning="Autograd's anomaly detection keeps a stack trace with every node of the graph and checks every "
        "gradient.",
        remedy="Turn it on while looking for a NaN, and off again.",
    ),
    AuditRule(
        code="MA036",
        priority="medium",
        confidence="high",
        title="recording without an end",
        meaning="A profiler without a schedule around a training loop, or _record_memory_history() without "
        "max_entries and without a stop, keeps every event in host memory.",
        remedy="Give the profiler a schedule=; give the history max_entries and stop it with enabled=None.",
    ),
    # The model.
    AuditRule(
        code="MA041",
        priority="low",
        confidence="low",
        title="deep stack without checkpointing",
        meaning="A module runs through a deep stack of blocks, and its file knows no activation checkpointing: a "
        "step keeps the activations of every block.",
        remedy="Where memory is short, wrap blocks in torch.utils.checkpoint.checkpoint(…, use_reentrant=False); "
        "memplan checkpoint-plan says which.",
    ),
    AuditRule(
        code="MA042",
        priority="medium",
        confidence="high",
        title="attention matrix written out",
        meaning="softmax of a product of queries and keys, times values, in separate operators: matrices of batch "
        "x heads x sequence² are kept for the backward pass.",
        remedy="Call torch.nn.functional.scaled_dot_product_attention, which never writes them out.",
    ),
    AuditRule(
        code="MA043",
        priority="low",
        confidence="high",
        title="eager attention asked for",
        meaning='attn_implementation="eager" writes attention matrices out, quadratic in the sequence.',
        remedy='Use "sdpa" or a flash attention, unless attention maps are read.',
    ),
    AuditRule(
        code="MA044",
        priority="low",
        confidence="medium",
        title="logits of the vocabulary in fp32",
        meaning="Logits are cast to fp32 before the loss: batch x sequence x vocabulary x 4 bytes once more, and "
        "again as a gradient. Often the peak of a language model's step.",
        remedy="Compute the loss in chunks of the sequence, or with a fused linear cross-entropy (Liger, torchtune).",
    ),
    AuditRule(
        code="MA045",
        priority="high",
        confidence="medium",
        title="forward() appends to a list that is never emptied",
        meaning="A module's forward puts tensors into a list of its own, and no line of the class empties it.",
        remedy="Return them, or clear the list at the start of forward.",
    ),
    AuditRule(
        code="MA046",
        priority="medium",
        confidence="high",
        title="cache keeps modules or tensors alive",
        meaning="functools.cache or lru_cache on a module's method, or on a function of tensors, holds every "
        "argument, the module and its parameters among them, until the entry goes.",
        remedy="Cache by sizes and dtypes in a dict of the instance, or on plain numbers.",
    ),
    AuditRule(
        code="MA047",
        priority="low",
        confidence="high",
        title="DataParallel gathers on one GPU",
        meaning="nn.DataParallel copies the model in every step and gathers all outputs and gradients on its "
        "first GPU, which runs out first.",
        remedy="Use DistributedDataParallel, with one process for each GPU.",
    ),
    AuditRule(
        code="MA049",
        priority="medium",
        confidence="medium",
        title="copy of the model on the device",
        meaning="deepcopy of a model, or of its state, in a training loop takes its size once more on the GPU.",
        remedy="Keep a copy of the state on the host: {name: t.detach().cpu().clone() …}, or write a checkpoint.",
    ),
    AuditRule(
        code="MA050",
        priority="medium",
        confidence="medium",
        title="optimizer made anew in every step",
        meaning="An optimizer is built in the loop that steps it: its state is allocated again each time, while "
        "the old one may still be there.",
        remedy="Build it once before the loop, or set new learning rates in its param_groups.",
    ),
    # Hooks.
    AuditRule(
        code="MA051",
        priority="high",
        confidence="high",
        title="hook registered in every step",
        meaning="A hook is registered in a loop that trains or goes over data, and never removed there: hooks, "
        "and what they close over, add up.",
        remedy="Register once before the loop, or keep the handle and call handle.remove().",
    ),
    AuditRule(
        code="MA052",
        priority="medium",
        confidence="medium",
        title="hook stores outputs with their graph",
        meaning="A forward hook puts a module's output, with its history, into something that outlives the call.",
        remedy="Store output.detach(), on the host if many are kept, and empty the store.",
    ),
    # Data.
    AuditRule(
        code="MA061",
        priority="medium",
        confidence="medium",
        title="dataset makes CUDA tensors",
        meaning="A Dataset's __getitem__, or a collate function, puts tensors on the GPU: every worker process "
        "then opens a CUDA context of its own, hundreds of MiB each, and nothing can be pinned.",
        remedy="Return CPU tensors; move the batch in the training loop with non_blocking=True.",
    ),
    AuditRule(
        code="MA063",
        priority="medium",
        confidence="high",
        title="many batches fetched ahead",
        meaning="num_workers x prefetch_factor batches wait in host (shared) memory: here 64 or more.",
        remedy="prefetch_factor=2 is the default; raise the number of workers before it.",
    ),
    AuditRule(
        code="MA064",
        priority="medium",
        confidence="medium",
        title="loader with workers made in the loop",
        meaning="A DataLoader with worker processes is built again in every round of a training loop; with "
        "persistent_workers=True the old ones stay until they are collected.",
        remedy="Build it once before the loop; a sampler's set_epoch() reshuffles.",
    ),
    AuditRule(
        code="MA065",
        priority="low",
        confidence="medium",
        title="whole data set moved to the device",
        meaning="All of the training data is moved to the GPU at once, where it stays beside the model.",
        remedy="Move batches; keep the data set on the host, pinned if it is small.",
    ),
    # Files.
    AuditRule(
        code="MA071",
        priority="medium",
        confidence="medium",
        title="checkpoint loaded onto the GPU",
        meaning="torch.load() without map_location puts tensors where they were when they were saved, or onto the "
        "GPU that it names: beside the model's own, and for every rank on GPU 0.",
        remedy='Load with map_location="cpu" (and mmap=True for a large file); load_state_dict copies from there.',
    ),
    # Pools.
    AuditRule(
        code="MA081",
        priority="medium",
        confidence="medium",
        title="taken from a pool and not given back",
        meaning="A buffer is taken from a pool outside of a with block, is not passed on, and nothing in the "
        "function or class gives it back.",
        remedy="Take it with a with block, or give it back in a finally clause.",
    ),
    AuditRule(
        code="MA082",
        priority="low",
        confidence="high",
        title="memory pool that is never used",
        meaning="A memory pool is imported or built, and the file does nothing with it: what it was meant to "
        "serve goes to the ordinary allocator.",
        remedy="Use it or take it out.",
    ),
    AuditRule(
        code="MA083",
        priority="low",
        confidence="medium",
        title="allocate and free do not match",
        meaning="A pool's class names what it hands out and what it takes back by different pairs (acquire … "
        "free): callers look for the other half, and leak.",
        remedy="Name them as one pair: allocate/free, acquire/release, take/give_back.",
    ),
    # The audit itself.
    AuditRule(
        code="MA099",
        priority="low",
        confidence="high",
        title="comment that excuses nothing",
        meaning="A memplan: ignore[…] or noqa comment names a rule that finds nothing there, or that does not exist.",
        remedy="Take the comment, or the code in it, out.",
    ),
)
