"""The truth to compare with: what PyTorch's own CPU allocator did in a real run, as torch.profiler saw it."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def real_allocations(body: Callable[[], object]) -> list[int]:
    """Run ``body`` for real; signed bytes of every allocation (+) and free (-), in order of time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = body()
        del kept
    found: list[tuple[int, int]] = []
    stack = list(profiler.profiler.kineto_results.experimental_event_tree())
    while stack:
        node = stack.pop()
        if str(node.tag).endswith("Allocation"):
            found.append((node.start_time_ns, node.typed[1].alloc_size))
        stack.extend(node.children)
    return [size for _, size in sorted(found, key=lambda event: event[0])]


def peak(sizes: list[int]) -> int:
    """Most bytes alive at once."""
    live = most = 0
    for size in sizes:
        live += size
        most = max(most, live)
    return most
