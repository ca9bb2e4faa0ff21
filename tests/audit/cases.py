"""For every rule: code that has the hazard, and code that only looks like it.

``HEAD`` stands above each. A case is a title and a body; the first line that is meant ends in ``# <-``.
"""
# ruff: noqa: E501, ISC004 - a case is one string, and its lines are those of its code

HEAD = """\
import copy
import gc
import functools
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
"""
LOOP = """\
def train(model, loader, optimizer, criterion, device):
    total, losses, meter, history = 0.0, [], AverageMeter(), []
    for step, (x, y) in enumerate(loader):
        out = model(x.to(device))
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
"""A training loop; what is put below it stands in the loop."""


def in_loop(*lines: str, before: str = "") -> str:
    """Statements at the end of a training step."""
    code = LOOP.replace("    for step", f"    {before}\n    for step") if before else LOOP
    return code + "".join(f"        {line}\n" for line in lines)


def evaluation(*lines: str, decorator: str = "", name: str = "evaluate", before: str = "model.eval()") -> str:
    """Statements in a loop over a loader."""
    head = f"{decorator}\n" if decorator else ""
    return (
        f"{head}def {name}(model, loader, device):\n    {before}\n    outs, right = [], 0\n    for x, y in loader:\n"
        + "".join(f"        {line}\n" for line in lines)
    )


def method(name: str, *lines: str, base: str = "nn.Module", init: str = "pass", more: str = "") -> str:
    """A method of a module."""
    body = "".join(f"        {line}\n" for line in lines)
    own = f"class Net({base}):\n    def __init__(self):\n        super().__init__()\n        {init}\n\n"
    arguments = {"training_step": "batch, index"}.get(name, "x")
    return f"{own}    def {name}(self, {arguments}):\n{body}\n{more}"


ATTENTION = "def attend(q, k, v, scale, mask, drop):\n"
BLOCK = "class Block(nn.Module):\n    def forward(self, x):\n        return x\n\n"

POSITIVE: dict[str, tuple[str, ...]] = {
    "MA001": (
        in_loop("total += loss  # <-"),
        in_loop("total = total + loss * x.size(0)  # <-"),
        in_loop("sums['train'] += 0.5 * loss  # <-", before="sums = {'train': 0.0}"),
        "def train(self, loader):\n    for batch in loader:\n        loss = self.compute(batch)\n"
        "        self.accelerator.backward(loss)\n        self.optimizer.step()\n        self.total += loss  # <-\n",
    ),
    "MA002": (
        in_loop("losses.append(loss)  # <-"),
        in_loop("history.append((step, loss))  # <-"),
        in_loop("kept[step] = out  # <-", before="kept = {}"),
        in_loop("self.losses.append(loss.mean())  # <-"),
        method("training_step", "loss = F.mse_loss(self.net(batch), batch)", "self.seen.append(loss)  # <-", "return loss",
               base="LightningModule", init="self.seen = []"),
    ),
    "MA003": (
        in_loop("self.last_loss = loss  # <-"),
        in_loop("self.output = out  # <-"),
        method("training_step", "loss = F.mse_loss(self.model(batch), batch)", "self.loss = loss  # <-", "return loss"),
    ),
    "MA004": (
        in_loop("meter.update(loss, x.size(0))  # <-"),
        in_loop("self.loss_meter.update(loss)  # <-"),
        in_loop("meters['loss'].update(loss)  # <-", before="meters = {'loss': AverageMeter()}").replace("meters", "avg_meters"),
        in_loop("metric_logger.update(loss=loss)  # <-"),
    ),
    "MA005": (
        method("forward", "self.mean = 0.9 * self.mean + 0.1 * x.mean(0)  # <-", "return x - self.mean"),
        method("forward", "batch_var = x.var(0)", "self.var = self.decay * self.var + (1 - self.decay) * batch_var  # <-",
               "return x"),
        "def update(model, shadow, decay):\n    for name, p in model.named_parameters():\n"
        "        shadow[name] = decay * shadow[name] + (1 - decay) * p  # <-\n",
    ),
    "MA011": (
        evaluation("right += (model(x).argmax(1) == y).sum().item()  # <-"),
        evaluation("out = model(x.to(device))  # <-", name="run", before="model.eval()"),
        evaluation("out = model(x)  # <-", "outs.append(out.cpu())", name="validate_epoch", before="pass"),
    ),
    "MA012": (
        in_loop("if step % 100 == 0:", "    model.eval()  # <-", "    check(model)", before="model.train()"),
        in_loop("model.eval()  # <-", "with torch.no_grad():", "    model(x)", before="o = SGD(model.parameters())"),
        "def fit(net, loader, opt):\n    net.train()\n    for epoch in range(9):\n        for x, y in loader:\n"
        "            F.mse_loss(net(x), y).backward()\n            opt.step()\n        net.eval()  # <-\n        report(net)\n",
    ),
    "MA013": (
        evaluation("out = model(x)", "outs.append(out)  # <-", decorator="@torch.no_grad()"),
        evaluation("logits = model(x).logits", "outs.append(logits.softmax(-1))  # <-", decorator="@torch.inference_mode()"),
        evaluation("with torch.no_grad():", "    out = model(x)", "outs.append(out.detach())  # <-"),
        "@torch.no_grad()\ndef embed(model, loader):\n    outs = []\n    for batch in loader:\n"
        "        outs.append(F.normalize(model(batch)))  # <-\n    return torch.cat(outs)\n",
    ),
    "MA014": (
        evaluation("out = model(x, output_hidden_states=True)  # <-", decorator="@torch.no_grad()"),
        evaluation("out = model(x, output_attentions=True)  # <-", decorator="@torch.no_grad()"),
        "for x, y in train_loader:\n    loss = model(x, labels=y, output_attentions=True).loss  # <-\n    loss.backward()\n",
    ),
    "MA021": (
        in_loop("torch.cuda.empty_cache()  # <-"),
        evaluation("model(x)", "torch.cuda.empty_cache()  # <-", decorator="@torch.no_grad()"),
        "from torch.cuda import empty_cache\nwhile True:\n    loss = step()\n    loss.backward()\n    empty_cache()  # <-\n",
        method("training_step", "torch.mps.empty_cache()  # <-", "return self.loss(batch)"),
    ),
    "MA022": (
        in_loop("gc.collect()  # <-"),
        evaluation("model(x)", "gc.collect()  # <-", decorator="@torch.no_grad()"),
        "from gc import collect\nfor batch in loader:\n    model(batch).sum().backward()\n    collect()  # <-\n",
    ),
    "MA023": (
        "def step(model, x):\n    try:\n        out = model(x)\n    except torch.cuda.OutOfMemoryError:\n"
        "        torch.cuda.empty_cache()\n        out = model(x[:4])  # <-\n    return out\n",
        "try:\n    loss.backward()\nexcept RuntimeError as e:\n    if 'out of memory' in str(e):\n"
        "        torch.cuda.empty_cache()\n        loss.backward()  # <-\n",
        "try:\n    out = model(x)\nexcept (ValueError, torch.OutOfMemoryError):\n    out = model(x.half())  # <-\n",
    ),
    "MA031": (
        "for x, y in loader:\n    loss = F.mse_loss(model(x), y)\n    loss.backward(retain_graph=True)  # <-\n    opt.step()\n",
        "def step(model, x, y, crit):\n    loss = crit(model(x), y)\n    loss.backward(retain_graph=True)  # <-\n    return loss\n",
        "def step(x, y):\n    a = crit(x, y)\n    loss = a - 1\n    (loss * 2).backward(retain_graph=True)  # <-\n    print(a.item())\n",
    ),
    "MA032": (
        in_loop("loss.backward(create_graph=True)  # <-"),
        "def hessian(loss):\n    loss.backward(create_graph=True)  # <-\n    return 1\n",
        "loss.sum().backward(retain_graph=True, create_graph=True)  # <-\n",
    ),
    "MA033": (
        in_loop("optimizer.zero_grad(set_to_none=False)  # <-"),
        "model.zero_grad(set_to_none=False)  # <-\n",
        "for o in optimizers:\n    o.zero_grad(set_to_none=False)  # <-\n",
    ),
    "MA034": (
        "for x, y in loader:\n    x.requires_grad_()  # <-\n    F.mse_loss(model(x), y).backward()\n",
        "for images, y in loader:\n    images = images.cuda().float()\n    images.requires_grad_(True)  # <-\n"
        "    F.mse_loss(model(images), y).backward()\n",
        "from torch.autograd import Variable\nfor inputs, y in loader:\n    inputs = Variable(inputs, requires_grad=True)  # <-\n"
        "    F.mse_loss(model(inputs), y).backward()\n",
    ),
    "MA035": (
        "torch.autograd.set_detect_anomaly(True)  # <-\n",
        "def main():\n    torch.autograd.set_detect_anomaly(mode=True)  # <-\n",
        "from torch import autograd\nfor batch in loader:\n    with autograd.detect_anomaly():  # <-\n"
        "        model(batch).sum().backward()\n",
    ),
    "MA036": (
        "with torch.profiler.profile(profile_memory=True) as p:  # <-\n    for batch in loader:\n        model(batch).sum().backward()\n",
        "torch.cuda.memory._record_memory_history()  # <-\n",
        "from torch.profiler import profile\nwith profile() as p:  # <-\n    for i in range(9):\n        optimizer.step()\n",
        "torch.cuda.memory._record_memory_history(enabled='all', context='all')  # <-\n",
    ),
    "MA041": (
        BLOCK + method("forward", "for block in self.blocks:", "    x = block(x)", "return x",
               init="self.blocks = nn.ModuleList([Block(64) for _ in range(24)])  # <-"),
        BLOCK + method("forward", "for layer in self.layers:", "    x = layer(x)", "return x",
               init="self.layers = nn.ModuleList([Block(c) for _ in range(config.num_hidden_layers)])  # <-"),
        BLOCK + method("forward", "for i, b in enumerate(self.h):", "    x = b(x)", "return x", base="torch.nn.Module",
               init="self.h = torch.nn.ModuleList([Block(c, i) for i in range(c.n_layer)])  # <-"),
    ),
    "MA042": (
        ATTENTION + "    scores = q @ k.transpose(-2, -1) * scale\n    probs = F.softmax(scores, dim=-1)  # <-\n    return drop(probs) @ v\n",
        ATTENTION + "    a = torch.matmul(q, k.transpose(-1, -2)) / 8\n    a = a + mask\n    a = a.softmax(-1)  # <-\n"
        "    a = drop(a)\n    return torch.matmul(a, v)\n",
        ATTENTION + "    return torch.bmm(torch.softmax(torch.bmm(q, k.permute(0, 2, 1)), dim=2), v)  # <-\n",
        ATTENTION + "    w = torch.einsum('bhid,bhjd->bhij', q, k)\n    w = w.masked_fill(mask, -1e9)\n    p = w.softmax(dim=-1)  # <-\n"
        "    return torch.einsum('bhij,bhjd->bhid', p, v)\n",
    ),
    "MA043": (
        "model = AutoModel.from_pretrained(name, attn_implementation='eager')  # <-\n",
        "config = Config(_attn_implementation='eager')  # <-\n",
        "m = Llama.from_pretrained(\n    name,\n    attn_implementation='eager',  # <-\n)\n",
    ),
    "MA044": (
        "def loss(logits, labels, vocab_size):\n    return F.cross_entropy(logits.float().view(-1, vocab_size), labels)  # <-\n",
        "def forward(self, h, labels):\n    logits = self.lm_head(h)\n    logits = logits.float()  # <-\n"
        "    return nn.CrossEntropyLoss()(logits, labels)\n",
        "def forward(self, h, labels):\n    shift_logits = self.lm_head(h)[..., :-1, :]\n"
        "    return self.loss_function(shift_logits.to(torch.float32), labels)  # <-\n",
    ),
    "MA045": (
        method("forward", "x = self.net(x)", "self.seen.append(x)  # <-", "return x", init="self.seen = []"),
        method("forward", "self.inputs.append(x)  # <-", "return self.net(x)", init="self.inputs = []"),
        method("forward", "a = F.softmax(x, -1)", "self.maps.append(a.detach())  # <-", "return a", init="self.maps = []"),
    ),
    "MA046": (
        method("table", "return torch.arange(x)").replace("    def table", "    @functools.lru_cache(maxsize=8)\n    def table  # <-"
               ).replace("def table  # <-(self, x):", "def table(self, x):  # <-"),
        "from functools import cache\n@cache\ndef rotate(x: torch.Tensor, n):  # <-\n    return x.roll(n)\n",
        "@functools.cache\ndef size(model: nn.Module):  # <-\n    return sum(p.numel() for p in model.parameters())\n",
    ),
    "MA047": (
        "model = nn.DataParallel(model)  # <-\n",
        "from torch.nn import DataParallel\nmodel = DataParallel(model, device_ids=[0, 1])  # <-\n",
        "net = torch.nn.parallel.DataParallel(net)  # <-\n",
    ),
    "MA049": (
        in_loop("best = copy.deepcopy(model)  # <-"),
        in_loop("if loss < low:", "    best = copy.deepcopy(model.state_dict())  # <-"),
        "from copy import deepcopy\nfor epoch in range(9):\n    for x in loader:\n        self.model(x).sum().backward()\n"
        "    best = deepcopy(self.model)  # <-\n",
    ),
    "MA050": (
        "for epoch in range(9):\n    opt = torch.optim.Adam(model.parameters())  # <-\n    for x in loader:\n"
        "        model(x).sum().backward()\n        opt.step()\n",
        "for x in loader:\n    opt = torch.optim.SGD(model.parameters(), lr=1)  # <-\n    model(x).sum().backward()\n    opt.step()\n",
        "from torch import optim\nfor i in range(99):\n    o = optim.AdamW(net.parameters())  # <-\n    net(x).sum().backward()\n    o.step()\n",
    ),
    "MA051": (
        in_loop("model.layer.register_forward_hook(save)  # <-"),
        evaluation("handle = model.head.register_forward_hook(save)  # <-", "model(x)", decorator="@torch.no_grad()"),
        in_loop("optimizer.register_step_post_hook(note)  # <-"),
    ),
    "MA052": (
        "feats = []\ndef hook(module, inputs, output):\n    feats.append(output)  # <-\nmodel.layer.register_forward_hook(hook)\n",
        "store = {}\ndef make(name):\n    def hook(m, i, o):\n        store[name] = o[0]  # <-\n    return hook\n"
        "model.register_forward_hook(make('a'))\n",
        "class Tap:\n    def hook(self, m, i, out):\n        self.out = out  # <-\n    def attach(self, layer):\n"
        "        layer.register_forward_hook(self.hook)\n",
    ),
    "MA061": (
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return torch.tensor(self.x[i]).cuda()  # <-\n",
        "class Data(torch.utils.data.Dataset):\n    def __getitem__(self, i):\n        return self.x[i].to(self.device)  # <-\n",
        "def collate(rows):\n    return torch.stack(rows).to('cuda:0')  # <-\nloader = DataLoader(d, collate_fn=collate)\n",
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return torch.tensor(self.x[i], device='cuda')  # <-\n",
    ),
    "MA063": (
        "DataLoader(data, num_workers=8, prefetch_factor=16)  # <-\n",
        "DataLoader(data, num_workers=n, prefetch_factor=64)  # <-\n",
        "torch.utils.data.DataLoader(data, num_workers=32, prefetch_factor=2)  # <-\n",
    ),
    "MA064": (
        "for epoch in range(9):\n    loader = DataLoader(data, num_workers=4)  # <-\n    for x in loader:\n"
        "        model(x).sum().backward()\n",
        "for epoch in range(9):\n    for x in DataLoader(data, num_workers=n, persistent_workers=True):  # <-\n"
        "        model(x).sum().backward()\n",
        "for epoch in tqdm(range(epochs)):\n    train = DataLoader(data, shuffle=True, num_workers=2)  # <-\n    for x in train:\n"
        "        model(x).sum().backward()\n        opt.step()\n",
    ),
    "MA065": (
        "X_train = X_train.to(device)  # <-\n",
        "train_data = train_data.cuda()  # <-\n",
        "class A:\n    def load(self):\n        self.train_images = 1\n        x = self.train_images.to('cuda')  # <-\n",
    ),
    "MA071": (
        "def resume(self, path):\n    saved = torch.load(path)  # <-\n    self.net.load_state_dict(saved['net'])\n",
        "state = torch.load(path)  # <-\n",
        "model.load_state_dict(torch.load(path, weights_only=True)['model'])  # <-\n",
        "state = torch.load(path, map_location='cuda:0')  # <-\n",
        "from torch import load\nstate = load('model.pt', map_location=None)  # <-\n",
    ),
    "MA081": (
        "def step(pool):\n    buffer = pool.take(1024)  # <-\n    buffer.fill_(0)\n",
        "class A:\n    def step(self):\n        b = self.buffer_pool.acquire(8)  # <-\n        b.zero_()\n",
        "def step():\n    staging_pool.allocate(1 << 20)  # <-\n",
    ),
    "MA082": (
        "from memplan.runtime.pools import TensorPool  # <-\n",
        "from memory import BufferPool as Pool  # <-\nprint(1)\n",
        "def main():\n    pool = torch.cuda.MemPool()  # <-\n    train()\n",
    ),
    "MA083": (
        "class TensorPool:  # <-\n    def acquire(self, n): ...\n    def free(self, b): ...\n",
        "class Arena:  # <-\n    def allocate(self, n): ...\n    def release(self, b): ...\n",
        "class BlockAllocator:  # <-\n    def take(self): ...\n    def dealloc(self, b): ...\n",
    ),
}  # fmt: skip
"""Rule → code that has the hazard."""

NEGATIVE: dict[str, tuple[str, ...]] = {
    "MA001": (
        in_loop("total += loss.item()"),
        in_loop("total += float(loss)", "count += loss.detach() * 2"),
        in_loop("loss = loss.item()", "total += loss"),
        "def train(model, loader, opt):\n    for x in loader:\n        loss = 0\n        for part in x:\n"
        "            loss += F.mse_loss(model(part), part)\n        loss.backward()\n        opt.step()\n",
        "def train(model, loader, opt):\n    for epoch in range(3):\n        total = 0\n        for x in loader:\n"
        "            total += F.mse_loss(model(x), x)\n        total.backward()\n        opt.step()\n",
        "def evaluate(model, loader):\n    total = 0\n    with torch.no_grad():\n        for x in loader:\n"
        "            total += F.mse_loss(model(x), x)\n    return total\n",
    ),
    "MA002": (
        in_loop("losses.append(loss.item())"),
        in_loop("losses.append(loss.detach().cpu())"),
        in_loop("parts = []", "parts.append(loss)"),
        in_loop("losses.append(loss)", "if step % 10 == 9:", "    losses.clear()"),
        in_loop("kept['last'] = loss", before="kept = {}"),
        "for x in loader:\n    losses.append(F.mse_loss(model(x), x))\n    if len(losses) == 4:\n"
        "        torch.stack(losses).mean().backward()\n        del losses[:]\n        opt.step()\n",
    ),
    "MA003": (
        in_loop("self.last_loss = loss.item()"),
        in_loop("self.output = out.detach()"),
        in_loop("self.loss = loss", "log(self.loss)", "self.loss = None"),
        method("forward", "self.features = self.net(x)", "return self.features"),
    ),
    "MA004": (
        in_loop("meter.update(loss.item(), x.size(0))"),
        in_loop("progress.update(1)"),
        in_loop("meter.update(float(loss))"),
        in_loop("self.log('loss', loss)"),
    ),
    "MA005": (
        method("forward", "self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()", "return x"),
        method("forward", "with torch.no_grad():", "    self.mean = 0.9 * self.mean + 0.1 * x.mean(0)", "return x"),
        "@torch.no_grad()\ndef update(model, shadow, d):\n    for name, p in model.named_parameters():\n"
        "        shadow[name] = d * shadow[name] + (1 - d) * p\n",
        "def update(model, shadow, d):\n    for name, p in model.named_parameters():\n"
        "        shadow[name] = d * shadow[name] + (1 - d) * p.data\n",
        "speed.rate = 0.9 * speed.rate + 0.1 * seconds\n",
    ),
    "MA011": (
        evaluation("model(x)", decorator="@torch.no_grad()"),
        evaluation("with torch.inference_mode():", "    model(x)"),
        evaluation("model(x)", before="model.eval(); torch.set_grad_enabled(False)").replace("model.eval(); ", "model.eval()\n    "),
        evaluation("out = model(x)") + "with torch.no_grad():\n    evaluate(net, data, 'cpu')\n",
        evaluation("model(x).sum().backward()", "print(x.grad)"),
        evaluation("text = model.generate(x)"),
        evaluation("model(x)", name="on_validation_epoch_end"),
        "from monai.networks import eval_mode\n" + evaluation("with eval_mode(model):", "    model(x)"),
        evaluation("model(x)", name="run", before="model.train()"),
    ),
    "MA012": (
        in_loop("model.eval()", "check(model)", "model.train()", before="model.train()"),
        evaluation("model(x)", decorator="@torch.no_grad()"),
        in_loop("teacher.eval()", "teacher(x)"),
    ),
    "MA013": (
        evaluation("outs.append(model(x).cpu())", decorator="@torch.no_grad()"),
        evaluation("outs.append(model(x).argmax(-1))", decorator="@torch.no_grad()"),
        evaluation("out = model(x)", "outs.append(out.to(y.device))"),
        evaluation("out = model(x)", "out = out[:4].to('cpu', non_blocking=True)", "outs.append(out)"),
        evaluation("out = model(x)", "outs.append(out.mean())", decorator="@torch.no_grad()"),
        evaluation("parts = []", "parts.append(model(x))", decorator="@torch.no_grad()"),
        method("forward", "outs = []", "for block in self.blocks:", "    x = block(x)", "    outs.append(x)", "return outs"),
    ),
    "MA014": (
        evaluation("h = model(x, output_hidden_states=True).hidden_states[-1]", decorator="@torch.no_grad()"),
        evaluation("model(x, output_attentions=False)", decorator="@torch.no_grad()"),
        "out = model(x, output_hidden_states=True)\n",
        evaluation("out = model(x, output_attentions=True)", "show(out['attentions'])", decorator="@torch.no_grad()"),
    ),
    "MA021": (
        "for epoch in range(9):\n    train_one(model)\n    optimizer.step()\n    torch.cuda.empty_cache()\n",
        in_loop("if step % 500 == 0:", "    torch.cuda.empty_cache()"),
        "for x in loader:\n    try:\n        model(x).sum().backward()\n    except torch.OutOfMemoryError:\n        torch.cuda.empty_cache()\n",
        "for layer in layers:\n    quantize(layer)\n    torch.cuda.empty_cache()\n",
    ),
    "MA022": (
        in_loop("if step % 1000 == 0:", "    gc.collect()"),
        "for epoch in range(9):\n    fit(model)\n    optimizer.step()\n    gc.collect()\n",
        "del model\ngc.collect()\n",
    ),
    "MA023": (
        "failed = False\ntry:\n    out = model(x)\nexcept torch.OutOfMemoryError:\n    failed = True\nif failed:\n    out = model(x[:4])\n",
        "try:\n    out = model(x)\nexcept torch.OutOfMemoryError:\n    torch.cuda.empty_cache()\n    raise\n",
        "try:\n    out = model(x)\nexcept ValueError:\n    out = model(x[:4])\n",
        "for n in (8, 4):\n    try:\n        model(x[:n])\n    except torch.OutOfMemoryError:\n        torch.cuda.empty_cache()\n        continue\n",
    ),
    "MA031": (
        "for x, y in loader:\n    out = model(x)\n    a = F.mse_loss(out, y)\n    a.backward(retain_graph=True)\n    F.l1_loss(out, y).backward()\n",
        "def alpha(mmd):\n    loss = -mmd\n    loss.backward(retain_graph=True)\n",
        "def step(x, y, other):\n    a = crit(x, y)\n    loss = -a\n    loss.backward(retain_graph=True)\n    total = other + a\n"
        "    opt.step(total)\n",
        "def weights(loss, shared):\n    return torch.autograd.grad(loss, shared, retain_graph=True)\n",
        "loss = crit(model(x), y)\nloss.backward()\n",
        "out = model(x)\nfor row in out:\n    row.backward(retain_graph=True)\n",
        "def f(z, y):\n    z = z * 2\n    return z, torch.autograd.grad(z, y, retain_graph=True, create_graph=torch.is_grad_enabled())\n",
        "class Op(torch.autograd.Function):\n    def backward(ctx, g):\n        y = ctx.f(g)\n        y.backward(retain_graph=True)\n",
    ),
    "MA032": (
        "g = torch.autograd.grad(loss, w, create_graph=True)\n",
        "loss.backward(create_graph=False)\n",
        "def step(loss, ps):\n    loss.backward(create_graph=True)\n    for p in ps:\n        p.grad = None\n",
    ),
    "MA033": (
        in_loop("optimizer.zero_grad(set_to_none=True)"),
        in_loop("optimizer.zero_grad()"),
        "def zero_grad(self, set_to_none=False):\n    self.o.zero_grad(set_to_none=set_to_none)\n",
    ),
    "MA034": (
        "for x, y in loader:\n    x.requires_grad_()\n    F.mse_loss(model(x), y).backward()\n    use(x.grad)\n",
        "for x, y in loader:\n    x.requires_grad_()\n    torch.autograd.grad(model(x).sum(), x)\n    loss.backward()\n",
        "for x, y in loader:\n    x.requires_grad_(False)\n    F.mse_loss(model(x), y).backward()\n",
        "for x in loader:\n    model.requires_grad_(True)\n    model(x).sum().backward()\n",
    ),
    "MA035": (
        "if args.debug:\n    torch.autograd.set_detect_anomaly(True)\n",
        "torch.autograd.set_detect_anomaly(False)\n",
        "torch.autograd.set_detect_anomaly(args.anomaly)\n",
        "with torch.autograd.detect_anomaly():\n    print(model(x))\n",
    ),
    "MA036": (
        "with torch.profiler.profile(schedule=s) as p:\n    for batch in loader:\n        model(batch).sum().backward()\n        p.step()\n",
        "torch.cuda.memory._record_memory_history(max_entries=100_000)\n",
        "torch.cuda.memory._record_memory_history()\nrun()\ntorch.cuda.memory._record_memory_history(enabled=None)\n",
        "with torch.profiler.profile() as p:\n    model(x).sum().backward()\n",
    ),
    "MA041": (
        BLOCK + method("forward", "for block in self.blocks:", "    x = checkpoint(block, x)", "return x",
               init="self.blocks = nn.ModuleList([Block(64) for _ in range(24)])"),
        BLOCK + method("forward", "for block in self.blocks:", "    x = block(x)", "return x",
               init="self.blocks = nn.ModuleList([Block(64) for _ in range(3)])"),
        "from others import Block\n" + method("forward", "for block in self.blocks:", "    x = block(x)", "return x",
               init="self.blocks = nn.ModuleList([Block(64) for _ in range(24)])"),
        method("forward", "for layer in self.heads:", "    x = layer(x)", "return x",
               init="self.heads = nn.ModuleList([nn.Linear(8, 8) for _ in range(24)])"),
        BLOCK + "layers = nn.ModuleList([Block(64) for _ in range(24)])\n",
        BLOCK + "class Net(nn.Module):\n    def __init__(self, dim, depth: int = 4):\n"
        "        self.layers = nn.ModuleList([Block(dim) for _ in range(depth)])\n"
        "    def forward(self, x):\n        for layer in self.layers:\n            x = layer(x)\n        return x\n",
    ),
    "MA042": (
        ATTENTION + "    return F.scaled_dot_product_attention(q, k, v)\n",
        "def classify(h, w, v):\n    return torch.softmax(h @ w, -1) @ v\n",
        "def mix(gates, experts):\n    g = gates.softmax(-1)\n    return g @ experts\n",
        ATTENTION + "    if fast:\n        return F.scaled_dot_product_attention(q, k, v)\n"
        "    return (q @ k.transpose(-2, -1)).softmax(-1) @ v\n",
        ATTENTION + "    return torch.softmax(q @ k.transpose(-2, -1), -1)\n",
    ),
    "MA043": (
        "model = AutoModel.from_pretrained(name, attn_implementation='sdpa')\n",
        "model = AutoModel.from_pretrained(name, attn_implementation='eager')\nmaps = model(x).attentions\n",
        "model = AutoModel.from_pretrained(name, attn_implementation=args.attn)\n",
    ),
    "MA044": (
        "def loss(logits, labels):\n    return F.cross_entropy(logits.float(), labels)\n",
        "def loss(logits, labels, vocab_size):\n    return F.cross_entropy(logits.view(-1, vocab_size), labels)\n",
        "def scores(logits, vocab_size):\n    return logits.float()\n",
        "vocab_size = 9\ndef contrast(logits, target):\n    return F.cross_entropy(logits.float(), target)\n",
    ),
    "MA045": (
        method("forward", "self.seen = []", "self.seen.append(x)", "return x"),
        method("forward", "outs = []", "outs.append(x)", "return outs"),
        method("forward", "self.seen.append(x)", "return x", init="self.seen = []",
               more="    def reset(self):\n        self.seen.clear()\n"),
        method("forward", "self.sizes.append(x.shape[0])", "return x", init="self.sizes = []"),
    ),
    "MA046": (
        "@functools.cache\ndef table(n: int):\n    return list(range(n))\n",
        "class Reader:\n    @functools.lru_cache\n    def rows(self):\n        return 1\n",
        method("table", "return torch.arange(x)"),
        "def rotate(x: torch.Tensor):\n    return x\n",
    ),
    "MA047": (
        "model = nn.parallel.DistributedDataParallel(model)\n",
        "from mine import DataParallel\nmodel = DataParallel(model)\n",
        "if isinstance(model, nn.DataParallel):\n    model = model.module\n",
    ),
    "MA049": (
        "frozen = copy.deepcopy(model)\n",
        in_loop("conf = copy.deepcopy(config)"),
        in_loop("best = {k: v.cpu() for k, v in model.state_dict().items()}"),
    ),
    "MA050": (
        "opt = torch.optim.Adam(model.parameters())\nfor x in loader:\n    model(x).sum().backward()\n    opt.step()\n",
        "for fold in folds:\n    model = Net()\n    opt = torch.optim.Adam(model.parameters())\n    for x in loader:\n"
        "        model(x).sum().backward()\n        opt.step()\n",
        "for x in loader:\n    self.dual = torch.zeros(1, requires_grad=True)\n    o = torch.optim.SGD([self.dual], lr=1)\n"
        "    (model(x) * self.dual).sum().backward()\n    o.step()\n",
        "for model in models:\n    optimizers.append(torch.optim.Adam(model.parameters()))\n",
    ),
    "MA051": (
        "for m in model.modules():\n    m.register_forward_hook(save)\n",
        in_loop("handle = model.layer.register_forward_hook(save)", "model(x)", "handle.remove()"),
        in_loop("loss.register_hook(print)"),
        "model.register_forward_hook(save)\nfor x in loader:\n    model(x).sum().backward()\n",
    ),
    "MA052": (
        "feats = []\ndef hook(m, i, o):\n    feats.append(o.detach())\nmodel.register_forward_hook(hook)\n",
        "def hook(m, i, o):\n    print(o.shape)\nmodel.register_forward_hook(hook)\n",
        "feats = []\ndef hook(m, i, o):\n    feats.append(o)\nmodel.register_forward_hook(hook)\nwith torch.no_grad():\n    model(x)\n",
        "def hook(m, i, o):\n    kept = []\n    kept.append(o)\nmodel.register_forward_hook(hook)\n",
        "feats = []\ndef collect(m, i, o):\n    feats.append(o)\n",
    ),
    "MA061": (
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return torch.tensor(self.x[i])\n",
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return self.x[i].to(torch.float32)\n",
        "class Batch:\n    def __getitem__(self, i):\n        return self.x[i].cuda()\n",
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return self.x[i].to('cpu')\n",
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return torch.tensor(i, device=self.rows.device)\n",
    ),
    "MA063": (
        "DataLoader(data, num_workers=8, prefetch_factor=2)\n",
        "DataLoader(data, num_workers=8, prefetch_factor=args.prefetch)\n",
        "DataLoader(data, num_workers=8)\n",
        "Queue(num_workers=64, prefetch_factor=64)\n",
    ),
    "MA064": (
        "loader = DataLoader(data, num_workers=4)\nfor epoch in range(9):\n    for x in loader:\n        model(x).sum().backward()\n",
        "for epoch in range(9):\n    for x in DataLoader(data):\n        model(x).sum().backward()\n",
        "for split in splits:\n    loaders[split] = DataLoader(data[split], num_workers=4)\n",
        "for fold in range(5):\n    for x in DataLoader(data, num_workers=4):\n        model(x).sum().backward()\n",
    ),
    "MA065": (
        "for x, y in loader:\n    x = x.to(device)\n",
        "model = model.to(device)\n",
        "X_train = X_train.to(torch.float32)\n",
        "X_train = X_train.to('cpu')\n",
    ),
    "MA071": (
        "state = torch.load(path, map_location='cpu')\n",
        "state = torch.load(path, map_location=device)\n",
        "rng = torch.load('rng_state.pth')\n",
        "rows = torch.load(folder / 'rows.pt')\n",
        "state = torch.load(path, 'cpu')\n",
        "state = torch.load(path, **options)\n",
    ),
    "MA081": (
        "def step(pool):\n    with pool.take(1024) as b:\n        b.fill_(0)\n",
        "def step(pool):\n    b = pool.acquire(8)\n    try:\n        use(b)\n    finally:\n        pool.release(b)\n",
        "def step(pool):\n    return pool.take(8)\n",
        "def step(thread_pool):\n    x = thread_pool.acquire()\n    use(x)\n",
        "def step(pool):\n    b = pool.take(8)\n    b.give_back()\n",
    ),
    "MA082": (
        "from memplan.runtime.pools import TensorPool\nwith TensorPool() as pool:\n    run(pool)\n",
        "from pools import BufferPool\n__all__ = ['BufferPool']\n",
        "from multiprocessing.pool import ThreadPool\n",
        "def main():\n    pool = torch.cuda.MemPool()\n    with torch.cuda.use_mem_pool(pool):\n        train()\n",
    ),
    "MA083": (
        "class TensorPool:\n    def acquire(self, n): ...\n    def release(self, b): ...\n",
        "class Arena:\n    def allocate(self, n): ...\n    def free(self, b): ...\n",
        "class Meter:\n    def acquire(self, n): ...\n    def free(self, b): ...\n",
        "class BufferPool:\n    def take(self, n): ...\n    def give_back(self, b): ...\n",
    ),
}  # fmt: skip
"""Rule → code that only looks like it."""

_FURTHER: dict[str, tuple[str, ...]] = {
    "MA011": (
        "@contextlib.contextmanager\ndef mode(model, training):\n    with torch.set_grad_enabled(training):\n        yield\n\n"
        + evaluation("with mode(model, False):", "    model(x)"),
        evaluation("model.requires_grad_(False)", "model(x)"),
        evaluation("out = model(x)", "torch.autograd.grad(out, x)"),
        evaluation("with torch.enable_grad():", "    model(x)"),
        "def evaluate(model, x):\n    model.eval()\n    return model(x)\n",
        "def evaluate(model, layers, x):\n    model.eval()\n    for layer in layers:\n        x = model(x)\n    return x\n",
        "def fit(model, loader, opt):\n    model.eval()\n    for x in loader:\n        model(x)\n        opt.step()\n",
        evaluation("score(x)"),
    ),
    "MA012": (
        in_loop("print(model.eval())", "check(model)", before="model.train()"),
        in_loop("frame.eval(expression)", before="frame.train()"),
        "model.train()\nmodel.eval()\nfor x in loader:\n    F.mse_loss(net(x), x).backward()\n",
        in_loop("critic.eval()", "critic.score(x)", before="critic.train()"),
    ),
    "MA013": (
        evaluation("outs.insert(0, model(x))", decorator="@torch.no_grad()"),
        "@torch.no_grad()\ndef run(model, parts):\n    outs = []\n    for p in parts:\n        outs.append(model(p))\n",
        method("training_step", "for x in self.loader:", "    self.outs.append(self.model(x))"),
    ),
    "MA014": (evaluation("out = api(x, output_attentions=True)"),),
    "MA021": (
        in_loop("storage.empty_cache()"),
        "for batch in loader:\n    store(batch)\n    torch.cuda.empty_cache()\n",
        "for x in parts:\n    model(x)\n    torch.cuda.empty_cache()\n",
        "torch.cuda.empty_cache()\n",
        "for op in ops:\n    for _ in range(9):\n        op(x).sum().backward()\n    torch.cuda.empty_cache()\n",
    ),
    "MA023": (
        "try:\n    out = model(x)\nexcept RuntimeError:\n    out = model(x[:4])\n",
        "try:\n    out = model(x)\nexcept torch.OutOfMemoryError:\n    note('out of memory')\n",
        "try:\n    load(x)\nexcept KeyError:\n    torch.cuda.empty_cache()\n    out = model(x)\n",
    ),
    "MA031": (
        "def step(self):\n    self.loss.backward(retain_graph=True)\n",
        "from other import loss\nsave(loss, retain_graph=True)\n",
    ),
    "MA033": ("reset(set_to_none=False)\n", "buffer.fill(set_to_none=False)\n"),
    "MA034": (
        "x.requires_grad_()\nmodel(x)\n",
        "for x, y in loader:\n    images = torch.autograd.Variable(images)\n    F.mse_loss(model(images), y).backward()\n",
        "for x, y in loader:\n    w = torch.autograd.Variable(w, requires_grad=True)\n    F.mse_loss(model(x * w), y).backward()\n",
        "for x, y in loader:\n    data = torch.autograd.Variable(data, requires_grad=True)\n    o = torch.optim.SGD([data])\n"
        "    F.mse_loss(model(data), y).backward()\n",
    ),
    "MA035": (
        "with torch.autograd.set_detect_anomaly(True):\n    model(x)\n",
        "with torch.autograd.detect_anomaly(False):\n    for b in loader:\n        model(b).sum().backward()\n",
        "def main(a):\n    if a.detect:\n        torch.autograd.set_detect_anomaly(True)\n",
    ),
    "MA036": (
        "with torch.profiler.profile(**options) as p:\n    for batch in loader:\n        model(batch).sum().backward()\n",
        "torch.cuda.memory._record_memory_history(None)\n",
        "torch.cuda.memory._record_memory_history(enabled=None)\n",
        "torch.cuda.memory._record_memory_history(**options)\n",
        "p = torch.profiler.profile()\nfor batch in loader:\n    model(batch).sum().backward()\n",
    ),
    "MA041": (
        BLOCK + "class Net(nn.Module):\n    def __init__(self, dim, num_layers: int):\n"
        "        self.layers = nn.ModuleList([Block(dim) for _ in range(num_layers)])\n"
        "    def forward(self, x):\n        for layer in self.layers:\n            x = layer(x)\n        return x\n",
        BLOCK + method("step", "for block in self.blocks:", "    x = block(x)", "return x",
                       init="self.blocks = nn.ModuleList([Block(64) for _ in range(24)])"),
        BLOCK + method("forward", "for block in self.blocks:", "    x = block(x)", "return x", base="object",
                       init="self.blocks = nn.ModuleList([Block(64) for _ in range(24)])"),
        BLOCK + method("forward", "for block in self.blocks:", "    x = block(x)", "return x",
                       init="self.blocks = nn.ModuleList([Block(64) for _ in range(0, n_layer)])"),
        BLOCK + method("forward", "for block in self.blocks:", "    x = block(x)", "return x",
                       init="self.blocks = nn.ModuleList([Block(64) for _ in names])"),
        BLOCK + method("forward", "for block in self.blocks:", "    x = block(x)", "return x",
                       init="self.blocks = [Block(64) for _ in range(24)]"),
        BLOCK + method("forward", "for block in self.blocks:", "    x = block(x)", "return x",
                       init="self.blocks = nn.ModuleList([Block(64) for _ in range(width)])"),
    ),
    "MA042": (
        "def f(q, k, v):\n    return torch.softmax(k.transpose(0, 1) + q, -1) @ v\n",
        "def f(q, k, v):\n    return norm(q @ k.transpose(0, 1)) @ v\n",
        "def f(q, k, v):\n    a = q @ k.transpose(0, 1)\n    return torch.softmax(a, -1) + v\n",
    ),
    "MA044": (
        "def loss(scores, labels, vocab_size):\n    return F.cross_entropy(scores.float(), labels)\n",
        "def loss(logits, labels, vocab_size):\n    return F.cross_entropy(logits.to(labels.device), labels)\n",
        "def loss(logits, labels, vocab_size):\n    return F.cross_entropy(logits.to(torch.bfloat16), labels)\n",
    ),
    "MA045": (
        method("forward", "self.seen.append(x.mean().item())", "return x", init="self.seen = []"),
        method("forward", "self.seen.append(self._note(x))", "return x", init="self.seen = []"),
        method("forward", "self.seen.append(x)", "return x", init="self.seen = []") + "\nnet = Net()\nnet(1)\ndef f(net):\n    net.seen = []\n",
        method("forward", "self.seen.append(x)", "return x", init="self.seen = []") + "\ndel net.seen[:]\n",
        method("collect", "self.seen.append(x)", "return x", init="self.seen = []"),
    ),
    "MA046": (
        "class Net(nn.Module):\n    @staticmethod\n    @functools.cache\n    def table(n):\n        return n\n",
    ),
    "MA049": (
        in_loop("best = copy.copy(model)"),
        in_loop("host = copy.deepcopy(model).cpu()"),
        "for m in models:\n    other = copy.deepcopy(model)\n",
    ),
    "MA050": (
        "for epoch in range(9):\n    if epoch == 5:\n        opt = torch.optim.SGD(model.parameters())\n    for x in loader:\n"
        "        model(x).sum().backward()\n        opt.step()\n",
        "for epoch in range(9):\n    opt = build(model.parameters())\n    for x in loader:\n        model(x).sum().backward()\n",
    ),
    "MA051": (
        in_loop("for layer in model.children():", "    pass", "part = make(x)", "part.register_forward_hook(save)"),
        in_loop("with model.register_forward_hook(save):", "    model(x)"),
        in_loop("model.register_buffer(save)"),
    ),
    "MA052": (
        "feats = []\n@torch.no_grad()\ndef hook(m, i, o):\n    feats.append(o)\nmodel.register_forward_hook(hook)\n",
        "feats = []\ndef hook(m, o):\n    feats.append(o)\nmodel.register_forward_hook(hook)\n",
        "feats = []\ndef hook(m, i, o):\n    feats.append(o)\nmodel.register_forward_pre_hook(hook)\n",
        "feats = []\ndef hook(m, i, o):\n    o = o.detach()\n    feats.append(o)\nmodel.register_forward_hook(hook)\n",
        "feats = {}\ndef hook(m, i, o):\n    feats['n'] = len(o)\nmodel.register_forward_hook(hook)\n",
        "def hook(m, i, o):\n    m.last = o\nmodel.register_forward_hook(hook)\n",
        "def hook(m, i, o):\n    kept = {}\n    kept['o'] = o\nmodel.register_forward_hook(hook)\n",
    ),
    "MA061": (
        "class Data(Dataset):\n    def move(self, i):\n        return self.x[i].cuda()\n",
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return open(self.x[i], device=device)\n",
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return self.x[i].to(dtype)\n",
    ),
    "MA063": ("DataLoader(data, num_workers=64, prefetch_factor=True)\n",),
    "MA064": (
        "for epoch in range(9):\n    for x in DataLoader(data, num_workers=0):\n        model(x).sum().backward()\n",
        "for epoch in range(9):\n    show(DataLoader(data, num_workers=4))\n",
        "for epoch in range(9):\n    if epoch == 3:\n        loader = DataLoader(data, num_workers=4)\n    for x in loader:\n"
        "        model(x).sum().backward()\n",
    ),
    "MA065": ("for part in parts:\n    x_train = x_train.to(device)\n", "X_train = X_train.numpy()\n", "other = other.cuda()\n"),
    "MA071": ("state = torch.load(f)\ntorch.set_rng_state(state['cpu'])\n", "state = torch.load(model_path, mmap=True)\n", "state = json.load(model_path)\n"),
}  # fmt: skip
"""What only looks like a hazard in one more way: ``break_rules`` asked for these."""
NEGATIVE |= {rule: (*NEGATIVE[rule], *more) for rule, more in _FURTHER.items()}
_MORE: dict[str, tuple[str, ...]] = {
    "MA002": (in_loop("self.kept.extend([out])  # <-"), in_loop("queue.appendleft(out.float())  # <-")),
    "MA011": (
        evaluation("with autocast():", "    out = self.model(x)  # <-"),
        evaluation("with torch.set_grad_enabled(True):", "    out = model(x)  # <-"),
        "def validate(net, batches):\n    for batch in tqdm(batches):\n        net.forward(batch)  # <-\n    return net.state_dict()\n",
    ),
    "MA013": (
        evaluation("out = model(x)", "outs.append(out[0].squeeze(1))  # <-", decorator="@torch.no_grad()"),
        evaluation("a, b = model(x)", "outs.append(b)  # <-", decorator="@torch.no_grad()"),
    ),
    "MA021": (
        "for batch in loader:\n    trainer.model(batch)\n    accelerator.empty_cache()  # <-\n",
        "for batch in loader:\n    opt.zero_grad()\n    opt.step()\n    torch.xpu.empty_cache()  # <-\n",
    ),
    "MA023": (
        "try:\n    opt.step()\nexcept torch.OutOfMemoryError:\n    opt.step()  # <-\n",
        "try:\n    out = model(x)\nexcept RuntimeError:\n    torch.cuda.empty_cache()\n    out = model(x[:4])  # <-\n",
    ),
    "MA035": ("def main():\n    if args.amp:\n        torch.autograd.set_detect_anomaly(True)  # <-\n",),
    "MA041": (BLOCK + "class Net(nn.Module):\n    def __init__(self, dim, *, depth=32):\n"
              "        self.layers = nn.ModuleList([Block(dim) for _ in range(depth)])  # <-\n"
              "    def forward(self, x):\n        for layer in self.layers:\n            x = layer(x)\n        return x\n",),
    "MA042": (
        ATTENTION + "    return q.matmul(k.mT).softmax(-1).matmul(v)  # <-\n",
        ATTENTION + "    kT = flip(k)\n    s = torch.bmm(q, kT)\n    p = F.dropout(torch.softmax(s.float(), -1).to(q.dtype))  # <-\n"
        "    return p.bmm(v)\n",
        ATTENTION + "    k_t = k.transpose(1, 2)\n    s = mask + q @ k_t\n    return self.softmax(s) @ v  # <-\n",
        ATTENTION + "    key = k.permute(0, 2, 1)\n    s = q.bmm(key)\n    w = s.softmax(2).masked_fill(mask, 0)  # <-\n    return w @ v\n",
    ),
    "MA044": ("def loss(lm_logits, labels):\n    n = self.config.vocab_size\n    x = lm_logits.float()  # <-\n    return F.nll_loss(x, labels)\n",),
    "MA045": (
        method("forward", "y = self.net(x) + x", "self.seen.append(y)  # <-", "return y", init="self.seen = []", base="LightningModule"),
        method("forward", "self.seen.append(torch.softmax(x, -1))  # <-", "return x", init="self.seen = []"),
    ),
    "MA049": (in_loop("keep = copy.deepcopy(self.net.state_dict())  # <-"),),
    "MA050": ("for batch in loader:\n    o = torch.optim.Adam(params=model.parameters())  # <-\n    for _ in range(3):\n"
              "        model(batch).sum().backward()\n        o.step()\n",),
    "MA052": (
        "feats = {}\ndef hook(m, i, o):\n    x = o[0]\n    feats['a'] = x.float()  # <-\nmodel.register_forward_hook(hook)\n",
    ),
    "MA061": (
        "class Data(Dataset):\n    def __getitem__(self, i):\n        return self.x[i].to(args.device)  # <-\n",
        "class A:\n    def pad(self, rows):\n        return torch.zeros(3, device='cuda')  # <-\n    def run(self):\n"
        "        return DataLoader(d, collate_fn=self.pad)\n",
    ),
    "MA071": ("state = torch.load(model_path, None)  # <-\n", "ckpt = torch.load(f, 'cuda')  # <-\n"),
}  # fmt: skip
"""The hazard in one more form."""
POSITIVE |= {rule: (*POSITIVE[rule], *more) for rule, more in _MORE.items()}

FOREIGN = "from other import Base\n"
"""A base class whose methods nobody sees."""


def as_method(body: str, base: str, more: str = "") -> str:
    """A function as a method of a class."""
    inner = "".join(f"    {line}\n" for line in body.replace("def evaluate(", "def evaluate(self, ").splitlines())
    return f"{FOREIGN}class Detector({base}):\n{inner}{more}"


TRIED = ("try:", "    with torch.no_grad():", "        out = model(x)", "except RuntimeError:")
WRAPPED = (
    "def load(model, path):\n    model = nn.DataParallel(model){}\n    model.load_state_dict(torch.load(path, 'cpu'))\n"
)
_JUDGED_FALSE: dict[str, tuple[str, ...]] = {
    "MA011": (
        as_method(evaluation("model(x)"), "Base"),
        evaluation("out = model(x)", "outs.append(scale(out).to('cpu').numpy())"),
        evaluation("out = model(x) * 2", "outs.append(out[0].numpy())"),
        evaluation("outs.append(torch.from_numpy(model(x)['score']))"),
        "from openvino import CompiledModel\n" + evaluation("model(x)").replace("(model,", "(model: CompiledModel,"),
        evaluation(*TRIED, "    out = model(x)"),
    ),
    "MA013": (
        evaluation("for batch_x2 in batch_x_parts:", "    outs.append(model(batch_x2))", decorator="@torch.no_grad()"
                   ).replace("    for x, y in loader:\n", "    if True:\n"),
        "@torch.no_grad()\ndef run(model, pairs):\n    outs = []\n    for batch in pairs:\n        outs.append(model(batch))\n",
        "@torch.no_grad()\ndef run(model, batch_data):\n    outs = []\n    for x in batch_data:\n        outs.append(model(x))\n",
    ),
    "MA031": (
        "out = model(x)\nloss = crit(out, y)\ntimed(lambda: loss.backward(retain_graph=True))\n",
        "def solve(x, metric):\n    def again(p):\n        energy = crit(p, metric)\n"
        "        return p - torch.autograd.grad(energy, p, retain_graph=True)[0]\n    return again(again(x))\n",
    ),
    "MA047": (
        WRAPPED.format("") + "    model = model.module\n    return model\n",
        "def load(model):\n    model.eval()\n    model = nn.DataParallel(model)\n    return 1\n",
    ),
    "MA081": (
        "def enter(self):\n    self.dim = _DIM_ALLOCATOR.allocate(self.name)\n    target, id_ = _DIM_ALLOCATOR.allocate(None)\n",
        "allocator = DimAllocator()\nallocator.allocate(3)\n",
    ),
}  # fmt: skip
"""What a blind judgement found false."""
NEGATIVE |= {rule: (*NEGATIVE[rule], *more) for rule, more in _JUDGED_FALSE.items()}
_BESIDE_THEM: dict[str, tuple[str, ...]] = {
    "MA011": (
        as_method(evaluation("model(x)  # <-"), "nn.Module"),
        as_method(evaluation("model(x)  # <-"), "Own", "class Own: pass\n"),
        as_method(evaluation("model(x)  # <-"), "Base", "    def run(self):\n        self.evaluate(1, 2, 3)\n"),
        as_method(evaluation("out = model(x)  # <-", "outs.append(out.detach())"), "Base"),
        FOREIGN + "@Base\n" + evaluation("model(x)  # <-"),
        evaluation("out = model(x)  # <-", "outs.append(out.detach().cpu().numpy())"),
        evaluation("out = model(x)  # <-", "outs.append(out.data.numpy())", "y.numpy()"),
        evaluation("out = model(x)  # <-", "outs.append(out.max(1)[1].numpy())"),
        evaluation("out = model(x)  # <-", "best, where = out.max(1)", "outs.append(where.numpy())"),
        evaluation("out = model(x)  # <-", "outs.append(out.numpy(force=True))"),
        evaluation("y = torch.from_numpy(y)", "model(x)  # <-"),
        evaluation("model(x)  # <-").replace("(model,", "(model: nn.Module,"),
        evaluation(*TRIED, "    out = other_model(x)  # <-"),
        evaluation("try:", "    out = load(x)", "except RuntimeError:", "    out = model(x)  # <-"),
        evaluation("try:", "    out = model(x)  # <-", "except RuntimeError:", "    pass"),
        "def evaluate(model, loader, x):\n    try:\n        model(x)\n    except RuntimeError:\n        for x in loader:\n"
        "            model(x)  # <-\n",
    ),
    "MA013": (
        "@torch.no_grad()\ndef run(model, loader):\n    outs, progress = [], tqdm(loader)\n    for inputs in progress:\n"
        "        outs.append(model(inputs))  # <-\n",
        "@torch.no_grad()\ndef run(model, data):\n    outs = []\n    rows = DataLoader(data)\n    for i, x in enumerate(rows):\n"
        "        outs.append(model(x))  # <-\n",
        "@torch.no_grad()\ndef run(model, batch_loader):\n    outs = []\n    for x in batch_loader:\n        outs.append(model(x))  # <-\n",
    ),
    "MA031": (
        "class A:\n    def step(self, x, y):\n        loss = crit(x, y)\n        loss.backward(retain_graph=True)  # <-\n",
    ),
    "MA047": (
        WRAPPED.format("  # <-") + "    return model\n",
        WRAPPED.format("  # <-") + "    def run(x):\n        return model(x)\n    go(run)\n",
        "def load(self, model):\n    self.model = nn.DataParallel(model)  # <-\n",
        "def load(model, parts):\n    for x in parts:\n        model(x)\n        model = nn.DataParallel(model)  # <-\n",
    ),
    "MA081": (
        "allocator = BlockMemoryAllocator()\nallocator.allocate(3)  # <-\n",
        "from memplan.runtime.pools import taken\ndef step(allocator):\n    allocator.allocate(3)  # <-\n",
        "def step(mem_allocator):\n    mem_allocator.allocate(3)  # <-\n",
        "def step(arena):\n    arena.allocate(3)  # <-\n",
    ),
}  # fmt: skip
"""The hazard in what looks like those."""
POSITIVE |= {rule: (*POSITIVE[rule], *more) for rule, more in _BESIDE_THEM.items()}
