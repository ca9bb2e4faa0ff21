"""A program written out as a file that a person can read."""

from textwrap import indent

from differential.program import Program, Shape, shapes
from differential.scripts import written

_HEAD = """import copy
import functools
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
"""


def source(program: Program) -> str:
    """The file.

    Raises:
        DoesNotFitError: A piece does not take the shape that it is given.
    """
    above: dict[str, None] = {}
    blocks, calls, last = [], [], program.start
    makes: list[str] = []
    for number, (block, placed, shape_behind) in enumerate(shapes(program)):
        last = shape_behind
        inits, forwards = [], []
        for index, (chosen, shape) in enumerate(placed):
            names = _names(shape, program.batch_size) | {"i": f"{number}_{index}", "n": chosen.size}
            inits.append(chosen.piece.init.format(**names))
            forwards.append(chosen.piece.forward.format(**names))
            above[chosen.piece.above] = None
        blocks.append(_module(f"Block{number}", inits, [*forwards, "return x"]))
        names = {"block": f"self.block{number}", "i": str(number)}
        makes += [f"self.block{number} = Block{number}()", block.wrap.setup.format(**names)]
        calls.append(block.wrap.call.format(**names))
        above[block.wrap.above] = None
    above[program.setup.above] = above[program.loop.above] = None
    net = _module("Net", makes, [*calls, "return x"])
    parts = [_HEAD, *(text.strip("\n") for text in above if text), *blocks, net, *_functions(program, last)]
    parts += [written(program.main, program)] if program.main else []
    return "\n\n".join(part.rstrip("\n") + "\n" for part in parts)


def _names(shape: Shape, batch_size: int) -> dict[str, int]:
    size = dict(zip("hw" if shape.kind == "image" else "thw", shape.size, strict=False))
    return {"c": shape.channels, "b": batch_size, "half": shape.channels // 2, **size}


def _module(name: str, inits: list[str], forwards: list[str]) -> str:
    lines = [f"class {name}(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [indent(text, " " * 8) for text in inits if text]
    lines += ["", "    def forward(self, x):", *(indent(text, " " * 8) for text in forwards if text)]
    return "\n".join(lines)


def _functions(program: Program, last: Shape) -> list[str]:
    names = {"b": "batch_size", "c": last.channels, "s": ", ".join(map(str, _dimensions(last)))}
    names |= {"spatial": "".join(f", {each}" for each in last.size)}
    items = [_input(program.start), program.loss.target.format(**names) if program.loss.target else ""]
    reads = "    target = batch[1]\n" if program.loss.target else ""
    parts = [
        "\n".join(["def model():", "    net = Net()", indent(program.setup.lines, "    "), "    return net"]),
        f"def batch(batch_size):\n    return ({', '.join(item for item in items if item)},)",
        f"def loss(output, batch):\n{reads}    return {program.loss.value.format(**names)}",
        f"def optimizer(parameters):\n    return {program.optimizer.value}",
    ]
    if program.loop.step:
        parts.append("def train_step(model, optimizer, batch):\n" + indent(program.loop.step.strip("\n"), "    "))
    return [part.replace("\n\n", "\n") for part in parts]


def _dimensions(shape: Shape) -> tuple[int, ...]:
    return (*shape.size, shape.channels) if shape.kind in ("flat", "sequence") else (shape.channels, *shape.size)


VOCABULARY = 4096
"""Tokens of ``ids``."""


def _input(start: Shape) -> str:
    if start.kind == "ids":
        return f"torch.randint({VOCABULARY}, (batch_size, {start.size[0]}))"
    return f"torch.randn(batch_size, {', '.join(map(str, _dimensions(start)))})"
