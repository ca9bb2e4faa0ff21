"""The calls of ``cudnn_space.py``: drawn from what people build, in an order of which every beginning is a fair sample.

A case is plain data: a kind, and what its builder in ``cudnn_calls.py`` reads. What a case leaves out has its default.
"""

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

Case = dict[str, Any]

CHANNELS = (1, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 80, 96, 100, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200, 256)
IMAGE_SIDES = (1, 4, 7, 8, 10, 14, 16, 20, 28, 32, 40, 56, 64, 80, 96, 112, 128, 160, 224, 256)
VOLUME_SIDES = (4, 6, 8, 12, 16, 24, 32, 48, 64)
LENGTHS = (16, 50, 64, 100, 128, 256, 400, 512, 1000, 1024, 4096, 16000)
KERNELS = (1, 1, 1, 3, 3, 3, 3, 3, 3, 5, 5, 7, 2, 4, 9)
MOST_ELEMENTS = 1 << 26
"""Of the source and of the result."""
MOST_WORK = 4e11
"""Multiplications of one call: some milliseconds on tensor cores, a tenth of a second without."""
MOST_WORK_OF_GROUPS = 4e10
"""Grouped kernels are slower."""
SCAN = (
    {"n": 16, "c": 64, "k": 128, "s": [28, 28], "f": [3, 3], "p": [1, 1]},
    {"n": 16, "c": 256, "k": 64, "s": [14, 14], "f": [1, 1]},
    {"n": 32, "c": 3, "k": 64, "s": [96, 96], "f": [3, 3], "p": [1, 1]},
)
"""From these one size at a time is changed."""
SCANNED: dict[str, tuple[Any, ...]] = {
    "n": (1, 2, 4, 7, 8, 20, 32, 64, 128, 256),
    "c": (1, 2, 3, 4, 5, 8, 16, 24, 32, 64, 66, 100, 128, 256, 512, 1024),
    "k": (1, 2, 3, 4, 5, 8, 16, 32, 64, 66, 100, 128, 256, 512, 1024),
    "s": ([7, 7], [8, 8], [16, 16], [30, 31], [32, 32], [56, 56], [64, 64], [112, 112], [128, 96], [224, 224]),
    "f": ([1, 1], [2, 2], [3, 3], [4, 4], [5, 5], [7, 7], [9, 9], [1, 7], [7, 1]),
    "st": ([2, 2], [3, 3]),
    "dl": ([2, 2], [4, 4]),
}


def cases(seed: int = 0) -> Iterator[Case]:
    """Cases without end: each family gets its share of every stretch."""
    makers = _makers(random.Random(seed))
    for number in count():
        yield makers[number % len(makers)]()


def _makers(draw: random.Random) -> list[Callable[[], Case]]:
    scans = _scans(draw)

    def image(**fixed: Any) -> Callable[[], Case]:
        return lambda: _convolution(draw, IMAGE_SIDES, 2, **fixed)

    def half() -> str:
        return draw.choice(("f16", "bf16"))

    weighted: list[tuple[int, Callable[[], Case]]] = [
        (8, image()),
        (3, lambda: _convolution(draw, IMAGE_SIDES, 2, dt=half())),
        (2, image(cl=1)),
        (2, lambda: _convolution(draw, IMAGE_SIDES, 2, dt=half(), cl=1)),
        (4, lambda: next(scans)),
        (2, lambda: _convolution(draw, VOLUME_SIDES, 3, dt=draw.choice(("f32", "f32", "f16", "bf16")))),
        (1, lambda: _convolution(draw, VOLUME_SIDES, 3, dt=draw.choice(("f32", "f16", "bf16")), cl=1)),
        (2, lambda: _convolution(draw, LENGTHS, 1, dt=draw.choice(("f32", "f32", "f16", "bf16")))),
        (2, lambda: _convolution(draw, IMAGE_SIDES, 2, t=1, dt=draw.choice(("f32", "f32", "f16", "bf16")))),
        (2, lambda: _grouped(draw, dt=draw.choice(("f32", "f32", "f16", "bf16")), cl=draw.choice((0, 0, 1)))),
        (2, lambda: _depthwise(draw, dt=draw.choice(("f32", "f32", "f16", "bf16")), cl=draw.choice((0, 0, 1)))),
        (1, lambda: _convolution(draw, IMAGE_SIDES, 2, dl=[draw.choice((2, 3, 4))] * 2, st=[1, 1], dt="f32")),
        (1, image(tf=0)),
        (1, lambda: _convolution(draw, IMAGE_SIDES, 2, det=1, dt=draw.choice(("f32", "f16")))),
        (6, lambda: _recurrent(draw)),
        (2, lambda: _batch_norm(draw)),
        (1, lambda: _module(draw)),
        (1, lambda: _attention(draw)),
    ]
    makers = [make for weight, make in weighted for _ in range(weight)]
    draw.shuffle(makers)
    return makers


def _scans(draw: random.Random) -> Iterator[Case]:
    """One size changed at a time, in several types and layouts, in random order; then again with other bases."""
    rows = []
    for base in SCAN:
        for name, values in SCANNED.items():
            for value in values:
                sides = value if name == "f" else base["f"]
                row = {**base, name: value, "p": [side // 2 for side in sides]}
                rows += [{"kind": "conv", **row, **way} for way in ({}, {"dt": "bf16"}, {"cl": 1})]
    draw.shuffle(rows)
    yield from rows
    while True:
        yield _convolution(draw, IMAGE_SIDES, 2)


def _convolution(draw: random.Random, sides: tuple[int, ...], dims: int, **fixed: Any) -> Case:
    while True:
        case: Case = {"kind": "conv", "n": draw.choice(BATCHES), "c": draw.choice(CHANNELS), "k": draw.choice(CHANNELS)}
        side = draw.choice(sides)
        case["s"] = [side] * dims if draw.random() < 0.75 else [draw.choice(sides) for _ in range(dims)]
        kernel = draw.choice(KERNELS)
        case["f"] = [kernel] * dims if draw.random() < 0.93 else [draw.choice((1, 3, 5, 7)) for _ in range(dims)]
        padded = draw.random() < 0.85
        case["p"] = [each // 2 if padded else 0 for each in case["f"]]
        case["st"] = [draw.choice((1, 1, 1, 2)) if kernel != 4 else 2] * dims
        case["dl"] = [1] * dims
        case |= {"g": 1, "b": int(draw.random() < 0.1)} | fixed
        if case.get("t") and draw.random() < 0.5:
            case["st"] = [2] * dims
            case["op"] = [draw.choice((0, 1))] * dims
        if _fits(case):
            return case


def _grouped(draw: random.Random, **fixed: Any) -> Case:
    while True:
        groups = draw.choice((2, 4, 8, 16, 32))
        case = _convolution(draw, IMAGE_SIDES, 2, **fixed)
        case |= {
            "g": groups,
            "c": groups * draw.choice((4, 8, 16, 32, 6)),
            "k": groups * draw.choice((4, 8, 16, 32, 6)),
        }
        if _fits(case):
            return case


def _depthwise(draw: random.Random, **fixed: Any) -> Case:
    while True:
        channels = draw.choice((8, 16, 32, 48, 64, 96, 128, 192, 384, 576, 768))
        case = _convolution(draw, IMAGE_SIDES, 2, **fixed)
        case |= {"g": channels, "c": channels, "k": channels * draw.choice((1, 1, 1, 2))}
        if _fits(case):
            return case


def result_sides(case: Case) -> list[int]:
    """Sides of the result of a convolution."""
    found = []
    for dim, side in enumerate(case["s"]):
        reach = case["dl"][dim] * (case["f"][dim] - 1)
        if case.get("t"):
            output_padding = case.get("op", [0] * len(case["s"]))[dim]
            found.append((side - 1) * case["st"][dim] - 2 * case["p"][dim] + reach + output_padding + 1)
        else:
            found.append((side + 2 * case["p"][dim] - reach - 1) // case["st"][dim] + 1)
    return found


def _fits(case: Case) -> bool:
    result = result_sides(case)
    if min(result) < 1 or (case.get("op") and case["op"][0] >= case["st"][0]):
        return False
    pixels, source, filters = case["n"], case["n"] * case["c"], case["c"] * case["k"] // case["g"]
    for side, ours, size in zip(result, case["s"], case["f"], strict=True):
        pixels, source, filters = pixels * side, source * ours, filters * size
    work = max(pixels, source // case["c"]) * filters
    most = MOST_WORK if case["g"] == 1 and case.get("tf", 1) else MOST_WORK_OF_GROUPS
    return max(pixels * case["k"], source) <= MOST_ELEMENTS and work <= most and filters <= MOST_ELEMENTS


def _recurrent(draw: random.Random) -> Case:
    mode = draw.choice(("LSTM", "LSTM", "GRU", "GRU", "RNN"))
    hidden = draw.choice((16, 50, 64, 100, 128, 200, 256, 512, 650, 1024, 1500))
    layers = draw.choice((1, 1, 2, 2, 3, 4))
    steps, batch = draw.choice((1, 5, 10, 35, 64, 100, 128, 256)), draw.choice((1, 2, 8, 20, 32, 64, 128, 256))
    if steps * batch * hidden * layers > 1 << 24:
        steps, batch = min(steps, 35), min(batch, 32)
    return {
        "kind": "rnn",
        "m": mode,
        "i": draw.choice((1, 32, 64, 100, 128, 256, 512, hidden)),
        "h": hidden,
        "l": layers,
        "t": steps,
        "n": batch,
        "bi": int(draw.random() < 0.35),
        "dr": draw.choice((0.0, 0.0, 0.0, 0.3)),
        "bf": int(draw.random() < 0.5),
        "bias": int(draw.random() < 0.9),
        "pr": draw.choice((0, 0, 0, hidden // 2)) if mode == "LSTM" else 0,
        "dt": draw.choice(("f32", "f32", "f16", "bf16")),
        "ac": int(draw.random() < 0.12),
        "pk": int(draw.random() < 0.12),
        "xg": int(draw.random() < 0.5),
        "tr": int(draw.random() < 0.8),
        "tf": int(draw.random() < 0.9),
    }


def _batch_norm(draw: random.Random) -> Case:
    while True:
        dims = draw.choice((1, 2, 2, 2, 2, 3))
        sides = {1: LENGTHS, 2: IMAGE_SIDES, 3: VOLUME_SIDES}[dims]
        size = [draw.choice(sides)] * dims
        case: Case = {"kind": "bn", "n": draw.choice(BATCHES), "c": draw.choice(CHANNELS), "s": size}
        case |= {"dt": draw.choice(("f32", "f32", "f16", "bf16")), "wt": draw.choice(("f32", "f32", "same"))}
        case |= {"cl": int(dims > 1 and draw.random() < 0.5), "tr": int(draw.random() < 0.8)}
        elements = case["n"] * case["c"]
        for side in size:
            elements *= side
        if elements <= MOST_ELEMENTS and elements > case["c"]:
            return case


def _module(draw: random.Random) -> Case:
    """A layer as people call it, with autograd, and sometimes with autocast."""
    case = _convolution(draw, IMAGE_SIDES, 2, dt="f32", cl=draw.choice((0, 0, 1)))
    return case | {"kind": "module", "b": draw.choice((0, 1)), "ac": draw.choice(("", "f16", "bf16"))}


def _attention(draw: random.Random) -> Case:
    return {
        "kind": "sdpa",
        "n": draw.choice((1, 2, 4, 8, 16)),
        "h": draw.choice((4, 8, 12, 16, 32)),
        "q": draw.choice((64, 77, 100, 128, 197, 256, 512, 1024, 2048)),
        "d": draw.choice((32, 64, 80, 96, 128)),
        "dt": draw.choice(("f16", "bf16")),
        "ca": draw.choice((0, 1)),
        "dr": draw.choice((0.0, 0.0, 0.1)),
    }
