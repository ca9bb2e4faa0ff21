"""Drawn programs as scripts: the same models and steps, trained by a main part as people write it, run to its end.

Truth is the whole run (loaders, evaluations, copies of the best weights), so that it also says what a few traced steps
leave out.
"""

import random
from textwrap import indent

from differential.program import Main, Part, Place, Program

_PLAIN = "output = net(items[0])\nvalue = loss(output, items)\nvalue.backward()\nopt.step()\nopt.zero_grad()\n"
BATCHES = (
    Part(name="anew", lines="for step in range(8):\n    items = batch({b})\n    ..."),
    Part(name="one_batch", lines="items = batch({b})\nfor step in range(8):\n    ..."),
    Part(name="loader", lines="data = TensorDataset(*batch(3 * {b}))\nloader = DataLoader(data, batch_size={b}, shuffle=True)\n"
         "for epoch in range(3):\n    for step, items in enumerate(loader):\n        ..."),
    Part(name="loader_uneven", lines="data = TensorDataset(*batch(2 * {b} + {b} // 2))\nloader = DataLoader(data, batch_size={b})\n"
         "for epoch in range(3):\n    for step, items in enumerate(loader):\n        ..."),
    Part(name="own_data", lines="loader = DataLoader(Samples(3 * {b}), batch_size={b}, drop_last=True, shuffle=True)\n"
         "for epoch in range(3):\n    for step, items in enumerate(loader):\n        ..."),
    Part(name="sliced", lines="whole = batch(3 * {b})\nfor epoch in range(3):\n    for start in range(0, 3 * {b}, {b}):\n"
         "        items = tuple(each[start:start + {b}] for each in whole)\n        ..."),
    Part(name="shuffled", lines="whole = batch(3 * {b})\nfor epoch in range(3):\n    order = torch.randperm(3 * {b})\n"
         "    for chosen in order.split({b}):\n        items = tuple(each[chosen] for each in whole)\n        ..."),
)  # fmt: skip
"""Where batches come from."""
BESIDE = (
    Part(name="nothing", lines=""),
    Part(name="history", lines="history.append(value.item())"),
    Part(name="running_loss", lines="total += float(value) * len(items[0])"),
    Part(name="losses_array", lines="losses.append(value.detach().numpy().copy())\nmean = np.mean(losses)"),
    Part(name="average", lines="with torch.no_grad():\n    for old, new in zip(ema.parameters(), net.parameters()):\n        old.lerp_(new, 0.1)"),
    Part(name="best", lines="if value.item() < best:\n    best = value.item()\n    kept = copy.deepcopy(net.state_dict())"),
    Part(name="saved", lines="torch.save({{'model': net.state_dict(), 'opt': opt.state_dict()}}, os.devnull)"),
    Part(name="evaluated", lines="net.eval()\nwith torch.no_grad():\n    score = loss(net(items[0]), items).item()\nnet.train()"),
    Part(name="printed", lines="print(f'{{value.item():.4f}} {{output.detach().float().mean():.3f}}')"),
    Part(name="outputs", lines="outputs = [*outputs[-2:], output.detach().clone()]"),
    Part(name="early", lines="bad = bad + 1 if value.item() > best else 0\nif bad > 100:\n    raise SystemExit"),
    Part(name="norms", lines="norm = sum(p.detach().norm() ** 2 for p in net.parameters()) ** 0.5\nnorms.append(norm.item())"),
)  # fmt: skip
"""What is done behind each step."""
PLACES: tuple[Place, ...] = ("module", "function", "class")
"""Where the main part stands."""
_PLACED = {
    "module": "if __name__ == '__main__':\n{main}",
    "function": "def main():\n{main}\n\n\nif __name__ == '__main__':\n    main()",
    "class": "class Trainer:\n    def fit(self):\n{main}\n\n\nif __name__ == '__main__':\n    Trainer().fit()",
}
_OWN_STEP = """value = train_step(net, opt, items)
output = items[0]
value = torch.as_tensor(0.0 if value is None else value)
"""
"""Steps of their own do not always hand on their loss."""
_NAMES = (
    "net = model()\nopt = optimizer(net.parameters())\nema = copy.deepcopy(net)\n"
    "history, losses, norms, outputs, total, best, bad = [], [], [], [], 0.0, 1e9, 0\n"
)
_HEAD = """
import os

import numpy as np
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Samples(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return tuple(each[0] for each in batch(1))


"""


def main_of(seed: int, number: int) -> Main:
    """The main part of one program of a run."""
    rng = random.Random(f"{seed}/{number}/main")
    return Main(loop=rng.choice(BATCHES), beside=rng.choice(BESIDE), place=rng.choice(PLACES))


def written(main: Main, program: Program) -> str:
    """What stands below a program's functions."""
    step = _OWN_STEP if program.loop.step else _PLAIN
    body = step + main.beside.lines.format()
    loop = main.loop.lines.format(b=program.batch_size)
    last = loop.splitlines()[-1]
    depth = " " * (len(last) - len(last.lstrip()))
    lines = _NAMES + loop.replace("...", indent(body, depth).strip())
    return _HEAD + _PLACED[main.place].format(main=indent(lines, " " * (8 if main.place == "class" else 4))) + "\n"
