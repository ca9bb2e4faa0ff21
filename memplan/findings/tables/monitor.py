"""What the monitor can find, by code: symptom (title), cause (meaning), fix (remedy)."""

from memplan.findings.records import Rule

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

TABLE = (
    Rule(
        code="MM001",
        title="device almost full",
        meaning="What cannot be had otherwise - the peak of live blocks, free pieces stuck beside them, the CUDA "
        "context and other processes - takes this share of the device. The allocator's cache that it could give "
        "back does not count, except where it is read from outside and cannot be told apart.",
        remedy="Take a smaller micro-batch with gradient accumulation, or checkpoint activations ('memplan "
        "recommend' ranks such changes). If the peak was at the start alone, call "
        "torch.cuda.reset_peak_memory_stats() after it.",
    ),
    Rule(
        code="MM002",
        title="host memory almost full",
        meaning="The machine, or its container's limit, has little memory left. The kernel ends processes when "
        "there is none.",
        remedy="Take fewer data workers or less prefetching, keep no whole data set in lists (each worker copies "
        "what it touches), load checkpoints with mmap=True, or raise the container's limit.",
    ),
    Rule(
        code="MM003",
        title="above the prediction",
        meaning="More is in use than the upper end of the plan's interval: the run is not what was planned, or "
        "the prediction is wrong.",
        remedy="Compare batch, sequence length, precision and optimizer with the plan's. If they agree, 'memplan "
        "validate' shows where the two part: please report it.",
    ),
    Rule(
        code="MM004",
        title="memory grows with every step",
        meaning="Allocated memory rises from check to check, beyond warm-up and noise: something is kept.",
        remedy="Look for losses added up with their graph (use loss.detach()), tensors appended to lists, hooks "
        "and caches; docs/runtime-leaks.md finds who holds them.",
    ),
    Rule(
        code="MM005",
        title="fragmented",
        meaning="A large share of the reserved memory is free, but in segments that are partly in use, so that "
        "neither a large request nor anybody else can have it.",
        remedy=f"Set {_ALLOCATOR}, or pad inputs to a few lengths. 'memplan simulate' compares settings.",
    ),
    Rule(
        code="MM006",
        title="the allocator gave its cache back",
        meaning="A request could only be served after the whole cache was freed, which waits for the device: "
        "steps are slow, and the next request may fail.",
        remedy=f"Leave more room: a smaller micro-batch. {_ALLOCATOR} helps where the cause is fragmentation.",
    ),
    Rule(
        code="MM007",
        title="GPUs are filled unevenly",
        meaning="One GPU, or one of the ranks that share a host, holds much more than another: stages or shards are "
        "uneven, or rank 0 gathers something.",
        remedy="Move what rank 0 alone holds (evaluation, checkpoints, logging of outputs) to the CPU, set the "
        "device of every rank before the first CUDA call, or balance the pipeline's stages.",
    ),
    Rule(
        code="MM008",
        title="others use this device",
        meaning="Much more is in use than this process's allocator and the predicted context explain.",
        remedy="Look with nvidia-smi for other processes: a notebook, an earlier run, an inference server. "
        "Libraries with allocators of their own count here, too.",
    ),
    Rule(
        code="MM009",
        title="the plan is for another device",
        meaning="A note: the device is not the plan's, or has another amount of memory. Figures are shown "
        "beside each other, and their difference raises no level.",
        remedy="Estimate with --gpu for this card, or say which of the file's GPUs it is.",
    ),
    Rule(
        code="MM010",
        title="a rank is behind",
        meaning="A note: one rank has made fewer optimizer steps than another had made two checks ago. Ranks that meet "
        "in every step are never so far apart.",
        remedy="Look at that rank's log, its data loader and its processors; where its allocator gives its cache back "
        "(MM006), let it hold less, or balance batches by headroom (memplan.runtime.adaptive.balance).",
    ),
    Rule(
        code="MM101",
        title="CUDA out of memory: the device was full",
        meaning="The request did not fit beside what was alive: the step needs more than the device has.",
        remedy="Take a smaller micro-batch with gradient accumulation, checkpoint activations, a lower precision "
        "or sharding. 'memplan recommend' says which of them fits at the least cost.",
    ),
    Rule(
        code="MM102",
        title="CUDA out of memory: fragmentation",
        meaning="Enough was reserved and not allocated, but in pieces.",
        remedy=f"Set {_ALLOCATOR}. 'memplan snapshot' on the file that was kept shows who holds the pieces, and "
        "whether the setting would have helped.",
    ),
    Rule(
        code="MM103",
        title="CUDA out of memory: others held the device",
        meaning="This process's own memory would have fitted; the rest of the device was taken by others.",
        remedy="End the other processes (nvidia-smi lists them), or give each rank a device of its own.",
    ),
    Rule(
        code="MM104",
        title="host allocation refused",
        meaning="The operating system refused memory for a CPU tensor: a limit on the address space (ulimit -v), "
        "or strict overcommit.",
        remedy="Raise the limit, take smaller batches on the host, or load large files memory-mapped.",
    ),
    Rule(
        code="MM105",
        title="killed by the kernel: out of host memory",
        meaning="The kernel's OOM killer ended a process of this container (its count of kills rose), with no "
        "chance for it to say a word.",
        remedy="Raise the container's memory limit, or take fewer data workers, less prefetching and pinned "
        "memory; load checkpoints with mmap=True and from one rank at a time.",
    ),
    Rule(
        code="MM106",
        title="killed, and nobody says why",
        meaning="SIGKILL came, and the kernel counted no kill for lack of memory here: a scheduler's time or "
        "memory limit, an operator, or an OOM killer whose counts cannot be seen from inside.",
        remedy="Look at the scheduler's record of the job, and at dmesg on the host.",
    ),
    Rule(
        code="MM107",
        title="CUDA out of memory: the device had room",
        meaning="The request was refused although the device had more than that free: the process is limited, or "
        "others gave memory back just then.",
        remedy="Look for torch.cuda.set_per_process_memory_fraction and per_process_memory_fraction in "
        "PYTORCH_CUDA_ALLOC_CONF, and for other processes that come and go.",
    ),
)
