"""Buffers of a made-up training run, as many as asked for, with sizes and lengths drawn at random."""

import random

from memplan.plan.reuse.records import ArenaBuffer, Problem


def training_run(layers, micro_batches, seed=0):
    """Forward and backward passes over ``layers``, one per micro-batch, and one update.

    Activations live from their layer's forward to its backward, gradients from the first backward to the update, and
    workspaces for one op; each layer has a width of its own.
    """
    draw = random.Random(seed)
    clock, found = 0, []
    widths = [draw.choice((256, 384, 512, 768, 1024)) for _ in range(layers)]

    def op():
        nonlocal clock
        clock += 1
        return clock

    def add(start, end, size):
        found.append(ArenaBuffer(name=f"b{len(found)}", start=start, end=end, size=-(-size // 512) * 512))

    gradients = [0] * layers
    for _ in range(micro_batches):
        tokens = draw.randrange(200, 2048)
        kept = []
        for width in widths:
            for factor in (1, 3, 1, 4, 4, 1):
                at = op()
                if draw.random() < 0.3:
                    add(at, at + 1, draw.randrange(1, 4 * tokens * width))
                kept.append((width, factor, at))
        for layer, (width, factor, begun) in reversed([(i // 6, what) for i, what in enumerate(kept)]):
            at = op()
            add(begun, at + 1, 2 * tokens * width * factor)
            add(at, at + 2, 2 * tokens * width * factor)
            if draw.random() < 0.3:
                add(at, at + 1, draw.randrange(1, 4 * tokens * width))
            gradients[layer] = gradients[layer] or at
    for width, begun in zip(widths, gradients, strict=True):
        at = op()
        add(begun, at + 1, 4 * 12 * width * width)
        add(at, at + 1, 4 * 12 * width * width)
    return Problem(buffers=tuple(found))
