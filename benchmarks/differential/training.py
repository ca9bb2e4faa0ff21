"""Rows of the grammar around the layers: calls of blocks, what is done to the model, losses, optimizers, loops."""

from differential.program import Loop, Loss, Optimizer, Setup, Wrap

PLAIN_WRAP = Wrap(name="plain", feature="", call="x = {block}(x)")
_SELECTIVE = """
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


def keep_products(ctx, op, *args, **kwargs):
    kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
"""
_SELECTIVE_CALL = """contexts = functools.partial(create_selective_checkpoint_contexts, keep_products)
x = checkpoint({block}, x, use_reentrant=False, context_fn=contexts)"""
WRAPS = (
    Wrap(name="checkpoint", feature="checkpoint", call="x = checkpoint({block}, x, use_reentrant=False)"),
    Wrap(name="checkpoint_no_random", feature="checkpoint",
         call="x = checkpoint({block}, x, use_reentrant=False, preserve_rng_state=False)"),
    Wrap(name="reentrant", feature="checkpoint reentrant",
         call="x = checkpoint({block}, x + 0 if x.requires_grad else x.requires_grad_(), use_reentrant=True)"),
    Wrap(name="reentrant_graph", feature="checkpoint reentrant",
         call="x = checkpoint({block}, x if x.requires_grad else x.requires_grad_(), use_reentrant=True)"),
    Wrap(name="selective", feature="checkpoint selective", call=_SELECTIVE_CALL, above=_SELECTIVE),
    Wrap(name="nested", feature="checkpoint",
         call="x = checkpoint(lambda y: checkpoint({block}, y * 1, use_reentrant=False) * 1, x, use_reentrant=False)"),
    Wrap(name="residual", feature="residual", call="x = x + {block}(x)", keeps_shape=True),
    Wrap(name="residual_inplace", feature="residual", call="y = {block}(x)\ny += x\nx = y", keeps_shape=True),
    Wrap(name="concat", feature="residual", call="x = torch.cat([{block}(x), {block}(x * 0.5)], dim=0).chunk(2)[0]"),
    Wrap(name="stochastic_depth", feature="values",
         call="x = x + {block}(x) if not self.training or float(torch.ones(())) > 0.5 else x", keeps_shape=True),
    Wrap(name="autocast", feature="autocast", call='with torch.autocast("cpu", torch.bfloat16):\n    x = {block}(x)\nx = x.float()'),
    Wrap(name="autocast_no_cache", feature="autocast",
         call='with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):\n    x = {block}(x)\nx = x.float()'),
    Wrap(name="twice", feature="residual", call="x = {block}({block}(x))", keeps_shape=True),
    Wrap(name="no_grad", feature="no grad", call="with torch.no_grad():\n    x = {block}(x)"),
    Wrap(name="beside_no_grad", feature="no grad", keeps_shape=True,
         call="with torch.no_grad():\n    teacher = {block}(x)\nx = {block}(x) - teacher"),
    Wrap(name="forward_hook", feature="hooks", call="x = {block}(x)",
         setup="{block}.register_forward_hook(lambda module, args, result: result * 2)"),
    Wrap(name="pre_hook", feature="hooks", call="x = {block}(x)",
         setup="{block}.register_forward_pre_hook(lambda module, args: (args[0] + 1,))"),
    Wrap(name="backward_hook", feature="hooks", call="x = {block}(x * 1)",
         setup="{block}.register_full_backward_hook(lambda module, inputs, outputs: None)"),
    Wrap(name="backward_hook_scales", feature="hooks", call="x = {block}(x * 1)",
         setup="{block}.register_full_backward_hook(lambda module, inputs, outputs: tuple(g if g is None else g * 2 for g in inputs))"),
    Wrap(name="kept_by_hook", feature="hooks", call="x = {block}(x)",
         setup="self.seen{i} = {{}}\n{block}.register_forward_hook("
               'lambda module, args, result: self.seen{i}.update(last=result.detach()))'),
    Wrap(name="saved_cast", feature="saved tensor hooks",
         call="with torch.autograd.graph.saved_tensors_hooks(\n    lambda t: t.bfloat16() if t.dtype == torch.float32 else t,\n"
              "    lambda t: t.float() if t.dtype == torch.bfloat16 else t,\n):\n    x = {block}(x)"),
    Wrap(name="save_on_cpu", feature="saved tensor hooks",
         call="with torch.autograd.graph.save_on_cpu():\n    x = {block}(x)"),
    Wrap(name="read_back", feature="arrays", above="import numpy as np\n",
         call="x = {block}(x)\nseen = np.abs(x.detach().float().numpy()).mean()\nx = x * 0.5"),
    Wrap(name="shuffled", feature="arrays", above="import numpy as np\n",
         call="order = torch.randperm(x.shape[0]).numpy()\nx = {block}(x)[torch.from_numpy(np.argsort(order).copy())]"),
    Wrap(name="counted_labels", feature="arrays", above="import numpy as np\n",
         call="labels = torch.randint(0, 10, (20_000,))\ncounts = np.bincount(labels.numpy(), minlength=10)\n"
              "x = {block}(x) * float(counts.sum() > 0)"),
    Wrap(name="copied_data", feature="arrays", above="import numpy as np\n",
         call="data = torch.from_numpy(np.arange(5_000) % 7).clone()\nmost = int(np.array(data).max())\nx = {block}(x) * most"),
    Wrap(name="listed", feature="arrays",
         call="values = torch.randint(0, 9, (3_000,)).tolist()\nx = {block}(x) * float(len(values) > 5)"),
    Wrap(name="array_written", feature="arrays", above="import numpy as np\n",
         call="x = {block}(x)\nnumbers = np.asarray(x.detach().float().numpy()).copy()\nnumbers *= 0\n"
              "x = x + torch.from_numpy(numbers).to(x.dtype)"),
    Wrap(name="deep_copied", feature="copies", above="import copy\n",
         call="twin = copy.deepcopy(x.detach())\nx = {block}(x) + twin.mean().to(x.dtype) * 0"),
    Wrap(name="pickled", feature="copies", above="import pickle\n",
         call="twin = pickle.loads(pickle.dumps(x.detach()))\nx = {block}(x) + twin.mean().to(x.dtype) * 0"),
    Wrap(name="saved_to_memory", feature="copies", above="import io\n",
         call="x = {block}(x)\ntorch.save(x.detach(), io.BytesIO())\nx = x * 0.5"),
    Wrap(name="best_state", feature="copies", setup="self.best{i} = {{}}",
         call="x = {block}(x)\nself.best{i} = {{key: value.clone() for key, value in self.state_dict().items()}}"),
    Wrap(name="from_list", feature="data",
         call="weights = torch.as_tensor([0.1] * 4_000)\nx = {block}(x) * weights.mean()"),
    Wrap(name="stacked_scalars", feature="data",
         call="weights = torch.stack([torch.tensor(float(each)) for each in range(50)])\nx = {block}(x) * weights.max()"),
    Wrap(name="from_bytes", feature="data",
         call="table = torch.frombuffer(bytearray(40_000), dtype=torch.float32).clone()\nx = {block}(x) + table[:1]"),
    Wrap(name="from_rows", feature="data", above="import numpy as np\n",
         call="table = torch.tensor(np.ones((100, 50), np.float32))\nx = {block}(x) * torch.FloatTensor([[1.0]]) + table[0, :1]"),
    Wrap(name="sampled", feature="data", above="import random\n",
         call="chosen = random.sample(range(1_000), 64)\nx = {block}(x) + torch.arange(1_000.0)[chosen].mean()"),
    Wrap(name="sequential_checkpoint", feature="checkpoint", keeps_shape=True,
         call="x = torch.utils.checkpoint.checkpoint_sequential([{block}, {block}], 2, x, use_reentrant=False)"),
)  # fmt: skip

PLAIN_SETUP = Setup(name="as_built", feature="", lines="")
_EACH = "for module in list(net.modules()):\n    if isinstance(module, nn.Linear):\n        "
_ZERO = """
class Doubled(nn.Module):
    def forward(self, weight):
        return weight + weight.transpose(0, 1).mean() * 0.1
"""
SETUPS = (
    Setup(name="freeze_first", feature="frozen", lines="for parameter in list(net.parameters())[:2]:\n    parameter.requires_grad_(False)"),
    Setup(name="freeze_half", feature="frozen", lines="for parameter in list(net.parameters())[::2]:\n    parameter.requires_grad_(False)"),
    Setup(name="weight_norm", feature="parametrizations", lines=_EACH + "nn.utils.parametrizations.weight_norm(module)"),
    Setup(name="spectral_norm", feature="parametrizations", lines=_EACH + "nn.utils.parametrizations.spectral_norm(module)"),
    Setup(name="orthogonal", feature="parametrizations", lines=_EACH + "nn.utils.parametrizations.orthogonal(module)"),
    Setup(name="own_parametrization", feature="parametrizations", above=_ZERO,
          lines=_EACH + 'nn.utils.parametrize.register_parametrization(module, "weight", Doubled())'),
    Setup(name="pruned", feature="parametrizations",
          lines="from torch.nn.utils import prune\n" + _EACH + 'prune.random_unstructured(module, "weight", amount=0.3)'),
    Setup(name="gradient_hook", feature="hooks",
          lines="for parameter in net.parameters():\n    parameter.register_hook(lambda gradient: gradient.clamp(-1, 1))"),
    Setup(name="accumulate_hook", feature="hooks",
          lines="for parameter in net.parameters():\n    parameter.register_post_accumulate_grad_hook(halve)",
          above="\ndef halve(parameter):\n    parameter.grad.mul_(0.5)\n"),
    Setup(name="channels_last", feature="views",
          lines="for module in net.modules():\n    if isinstance(module, nn.Conv2d):\n        module.to(memory_format=torch.channels_last)"),
    Setup(name="own_init", feature="in-place",
          lines="for parameter in net.parameters():\n    nn.init.normal_(parameter, std=0.05)"),
    Setup(name="deep_copy", feature="ema", lines="net.frozen = copy.deepcopy(net).requires_grad_(False)"),
    Setup(name="state_dict", feature="ema", lines="net.load_state_dict({name: value.clone() for name, value in net.state_dict().items()})"),
)  # fmt: skip

_CHANNELS = "torch.randint({c}, (batch_size,))"
LOSSES = (
    Loss(name="square", feature="losses", value="output.square().mean()"),
    Loss(name="abs_sum", feature="losses", value="output.abs().sum() / output.numel()"),
    Loss(name="logsumexp", feature="losses", value="torch.logsumexp(output.flatten(1), 1).mean()"),
    Loss(name="distance", feature="losses", value="torch.dist(output, torch.zeros_like(output))"),
    Loss(name="weighted", feature="losses", value="(output * torch.linspace(0, 1, output.shape[1]).view(1, -1, *[1] * (output.dim() - 2))).sum()"),
    Loss(name="several", feature="losses", value="output.mean() ** 2 + 0.1 * output.std() + output.max() * 0.01"),
    *(
        Loss(name=name, feature="losses", value=f"F.{name}(output, target)", target="torch.randn(batch_size, {s})")
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    ),
    Loss(name="bce_logits", feature="losses", value="F.binary_cross_entropy_with_logits(output, target)",
         target="torch.rand(batch_size, {s})"),
    Loss(name="bce", feature="losses", value="F.binary_cross_entropy(output.sigmoid(), target)", target="torch.rand(batch_size, {s})"),
    Loss(name="kl", feature="losses", value='F.kl_div(output.log_softmax(1), target.softmax(1), reduction="batchmean")',
         target="torch.randn(batch_size, {s})"),
    Loss(name="poisson", feature="losses", value="F.poisson_nll_loss(output, target)", target="torch.rand(batch_size, {s})"),
    Loss(name="gaussian", feature="losses", value="F.gaussian_nll_loss(output, target, torch.ones_like(output))",
         target="torch.randn(batch_size, {s})"),
    Loss(name="soft_margin", feature="losses", value="F.soft_margin_loss(output, target.sign())", target="torch.randn(batch_size, {s})"),
    Loss(name="cross_entropy", feature="losses", value="F.cross_entropy(output, target)", target=_CHANNELS, on=("flat",)),
    Loss(name="smoothed", feature="losses", value="F.cross_entropy(output, target, label_smoothing=0.1)", target=_CHANNELS, on=("flat",)),
    Loss(name="nll", feature="losses", value="F.nll_loss(F.log_softmax(output, 1), target)", target=_CHANNELS, on=("flat",)),
    Loss(name="multi_margin", feature="losses", value="F.multi_margin_loss(output, target)", target=_CHANNELS, on=("flat",)),
    Loss(name="focal", feature="losses", target=_CHANNELS, on=("flat",),
         value="((1 - output.softmax(1).gather(1, target[:, None])) ** 2 * F.cross_entropy(output, target, reduction=\"none\")[:, None]).mean()"),
    Loss(name="soft_targets", feature="losses", value="F.cross_entropy(output, target.softmax(-1))", target="torch.randn(batch_size, {s})",
         on=("flat",)),
    Loss(name="contrastive", feature="losses", on=("flat",),
         value="F.cross_entropy(F.normalize(output, dim=1) @ F.normalize(output, dim=1).t(), torch.arange(output.shape[0]))"),
    Loss(name="triplet", feature="losses", value="F.triplet_margin_loss(output, output.roll(1, 0), output.roll(2, 0))", on=("flat",)),
    Loss(name="cosine_embedding", feature="losses", on=("flat",),
         value="F.cosine_embedding_loss(output, output.roll(1, 0), torch.ones(output.shape[0]))"),
    Loss(name="multilabel", feature="losses", value="F.multilabel_soft_margin_loss(output, target.round())",
         target="torch.rand(batch_size, {c})", on=("flat",)),
    Loss(name="token_cross_entropy", feature="losses", value="F.cross_entropy(output.flatten(0, 1), target.flatten())",
         target="torch.randint({c}, (batch_size{spatial}))", on=("sequence",)),
    Loss(name="ctc", feature="losses", on=("sequence",), target="torch.randint(1, {c}, (batch_size, 4))",
         value="F.ctc_loss(output.transpose(0, 1).log_softmax(-1), target, torch.full(target.shape[:1], output.shape[1]), "
               "torch.full(target.shape[:1], 4), zero_infinity=True)"),
    Loss(name="shifted", feature="losses", on=("sequence",), target="torch.randint({c}, (batch_size{spatial}))",
         value="F.cross_entropy(output[:, :-1].reshape(-1, output.shape[-1]), target[:, 1:].reshape(-1))"),
    Loss(name="transposed_cross_entropy", feature="losses", value="F.cross_entropy(output.transpose(1, 2), target, ignore_index=0)",
         target="torch.randint({c}, (batch_size{spatial}))", on=("sequence",)),
    Loss(name="pixel_cross_entropy", feature="losses", value="F.cross_entropy(output, target)",
         target="torch.randint({c}, (batch_size{spatial}))", on=("signal", "image", "volume")),
    Loss(name="total_variation", feature="losses", value="(output[..., 1:] - output[..., :-1]).abs().mean()"),
)  # fmt: skip


def _optimizers(
    feature: str, values: dict[str, str], steps: int = 3, loops: tuple[str, ...] = ()
) -> tuple[Optimizer, ...]:
    return tuple(
        Optimizer(name=name, feature=feature, value=f"torch.optim.{value}", steps=steps, loops=loops)
        for name, value in values.items()
    )


OPTIMIZERS = (
    *_optimizers("optimizers", {
        "sgd": "SGD(parameters, lr=1e-3)",
        "momentum": "SGD(parameters, lr=1e-3, momentum=0.9)",
        "nesterov": "SGD(parameters, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-4)",
        "sgd_maximize": "SGD(parameters, lr=1e-6, maximize=True, dampening=0.1, momentum=0.5)",
        "adam": "Adam(parameters)",
        "amsgrad": "Adam(parameters, amsgrad=True, weight_decay=0.01)",
        "adam_maximize": "Adam(parameters, lr=1e-6, maximize=True)",
        "adamw": "AdamW(parameters)",
        "adamw_amsgrad": "AdamW(parameters, amsgrad=True)",
        "adamw_capturable": "AdamW(parameters, lr=torch.tensor(1e-3))",
        "rmsprop": "RMSprop(parameters, lr=1e-4)",
        "rmsprop_centered": "RMSprop(parameters, lr=1e-4, centered=True, momentum=0.9)",
        "adagrad": "Adagrad(parameters)",
        "adagrad_decay": "Adagrad(parameters, lr_decay=0.1, weight_decay=0.01, maximize=False)",
        "adadelta": "Adadelta(parameters)",
        "adamax": "Adamax(parameters)",
        "nadam": "NAdam(parameters)",
        "nadam_decoupled": "NAdam(parameters, weight_decay=0.01, decoupled_weight_decay=True)",
        "radam": "RAdam(parameters)",
        "asgd": "ASGD(parameters, lr=1e-4)",
        "rprop": "Rprop(parameters, lr=1e-4)",
        "adafactor": "Adafactor(parameters)",
        "groups": 'AdamW([{"params": [p], "weight_decay": 0.1 * (p.dim() > 1)} for p in parameters])',
    }),
    *_optimizers("optimizers foreach", {
        "sgd_foreach": "SGD(parameters, lr=1e-3, momentum=0.9, foreach=True)",
        "adam_foreach": "Adam(parameters, foreach=True)",
        "adamw_amsgrad_foreach": "AdamW(parameters, amsgrad=True, foreach=True)",
        "rmsprop_foreach": "RMSprop(parameters, lr=1e-4, centered=True, foreach=True)",
        "adagrad_foreach": "Adagrad(parameters, foreach=True)",
        "adadelta_foreach": "Adadelta(parameters, foreach=True)",
        "adamax_foreach": "Adamax(parameters, foreach=True)",
        "nadam_foreach": "NAdam(parameters, foreach=True)",
        "radam_foreach": "RAdam(parameters, foreach=True)",
        "asgd_foreach": "ASGD(parameters, lr=1e-4, foreach=True)",
        "rprop_foreach": "Rprop(parameters, lr=1e-4, foreach=True)",
        "adam_differentiable": "Adam(parameters, lr=1e-3, eps=1e-6, foreach=True, maximize=True)",
    }),
    *_optimizers("optimizers fused", {
        "adam_fused": "Adam(parameters, fused=True)",
        "adamw_fused": "AdamW(parameters, fused=True, amsgrad=True)",
        "sgd_fused": "SGD(parameters, lr=1e-3, momentum=0.9, fused=True)",
        "adagrad_fused": "Adagrad(parameters, fused=True)",
    }),
    *_optimizers("lbfgs", {
        "lbfgs": "LBFGS(parameters, lr=0.1, max_iter=4, history_size=3)",
        "lbfgs_wolfe": 'LBFGS(parameters, lr=0.1, max_iter=3, history_size=4, line_search_fn="strong_wolfe")',
    }, steps=8, loops=("closure",)),
)  # fmt: skip

_FORWARD = "output = model(batch[0])\nvalue = loss(output, batch)\n"
_STEP = "value.backward()\noptimizer.step()\noptimizer.zero_grad()\n"
_AVERAGE = """
average = {}


def follow(model):
    if not average:
        average.update((name, value.detach().clone()) for name, value in model.named_parameters())
    for name, value in model.named_parameters():
        average[name].mul_(0.99).add_(value.detach(), alpha=0.01)
"""
PLAIN_LOOP = Loop(name="loop", feature="")
LOOPS = (
    Loop(name="own", feature="own loops", step=_FORWARD + _STEP + "return value.item()"),
    Loop(name="own_returns", feature="own loops", step=_FORWARD + _STEP + "return value"),
    Loop(name="zero_first", feature="own loops", step="optimizer.zero_grad()\n" + _FORWARD + "value.backward()\noptimizer.step()"),
    Loop(name="zeroed", feature="own loops",
         step=_FORWARD + "value.backward()\noptimizer.step()\noptimizer.zero_grad(set_to_none=False)"),
    Loop(name="accumulate", feature="accumulation", grad_accum=3),
    Loop(name="accumulate_clip", feature="accumulation", grad_accum=2, clip_grad_norm=1.0),
    Loop(name="clip", feature="clipping", clip_grad_norm=0.5),
    Loop(name="own_accumulate", feature="accumulation",
         step="for index in range(2):\n    part = tuple(each[index::2] for each in batch)\n"
              "    value = loss(model(part[0]), part) / 2\n    value.backward()\noptimizer.step()\noptimizer.zero_grad()"),
    Loop(name="own_clip", feature="clipping",
         step=_FORWARD + "value.backward()\nnn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)\n"
              "optimizer.step()\noptimizer.zero_grad()"),
    Loop(name="clip_value", feature="clipping",
         step=_FORWARD + "value.backward()\nnn.utils.clip_grad_value_(model.parameters(), 0.1)\noptimizer.step()\noptimizer.zero_grad()"),
    Loop(name="noisy", feature="own loops",
         step=_FORWARD + "value.backward()\nfor parameter in model.parameters():\n    if parameter.grad is not None:\n"
              "        parameter.grad += torch.randn_like(parameter) * 1e-3\noptimizer.step()\noptimizer.zero_grad()"),
    Loop(name="autocast_loop", feature="autocast", autocast=True),
    Loop(name="autocast_accumulate", feature="autocast", autocast=True, grad_accum=2),
    Loop(name="own_autocast", feature="autocast",
         step='with torch.autocast("cpu", torch.bfloat16):\n    output = model(batch[0])\nvalue = loss(output.float(), batch)\n' + _STEP),
    Loop(name="ema", feature="ema", above=_AVERAGE, step=_FORWARD + _STEP + "follow(model)"),
    Loop(name="swa", feature="ema", above="averages = []",
         step=_FORWARD + _STEP + "if not averages:\n    averages.append(torch.optim.swa_utils.AveragedModel(model))\n"
              "averages[0].update_parameters(model)"),
    Loop(name="copy_target", feature="ema", above="targets = []",
         step="if not targets:\n    targets.append(copy.deepcopy(model).requires_grad_(False))\nwith torch.no_grad():\n"
              "    reference = targets[0](batch[0])\noutput = model(batch[0])\n"
              "value = loss(output, batch) + F.mse_loss(output, reference)\n" + _STEP +
              "with torch.no_grad():\n    for old, new in zip(targets[0].parameters(), model.parameters()):\n        old.lerp_(new, 0.1)"),
    Loop(name="closure", feature="closures",
         step="def closure():\n    optimizer.zero_grad()\n    value = loss(model(batch[0]), batch)\n    value.backward()\n    return value\n\n"
              "optimizer.step(closure)"),
    Loop(name="two_backwards", feature="graphs",
         step=_FORWARD + "value.backward(retain_graph=True)\nvalue.backward()\noptimizer.step()\noptimizer.zero_grad()"),
    Loop(name="autograd_grad", feature="graphs",
         step=_FORWARD + "weights = [p for p in model.parameters() if p.requires_grad]\n"
              "for weight, gradient in zip(weights, torch.autograd.grad(value, weights, allow_unused=True)):\n"
              "    weight.grad = gradient\noptimizer.step()\noptimizer.zero_grad()"),
    Loop(name="gradient_penalty", feature="double backward",
         step=_FORWARD + "weights = [p for p in model.parameters() if p.requires_grad]\n"
              "slopes = torch.autograd.grad(value, weights, create_graph=True, allow_unused=True)\n"
              "value = value + sum(slope.square().sum() for slope in slopes if slope is not None) * 1e-3\n" + _STEP),
    Loop(name="input_gradient", feature="double backward",
         step="x = batch[0].requires_grad_() if batch[0].is_floating_point() else batch[0]\noutput = model(x)\nvalue = loss(output, batch)\n"
              "if x.requires_grad:\n    (slope,) = torch.autograd.grad(value, x, create_graph=True, allow_unused=True)\n"
              "    if slope is not None:\n        value = value + slope.square().mean()\n" + _STEP),
    Loop(name="adversarial", feature="graphs",
         step="x = batch[0]\nif x.is_floating_point():\n    x = x.clone().requires_grad_()\n"
              "    (slope,) = torch.autograd.grad(loss(model(x), batch), x, allow_unused=True)\n"
              "    x = x.detach() if slope is None else (x + 0.01 * slope.sign()).detach()\n"
              "value = loss(model(x), batch)\n" + _STEP),
    Loop(name="sharpness_aware", feature="own loops",
         step="loss(model(batch[0]), batch).backward()\nkept = [p.detach().clone() for p in model.parameters()]\nwith torch.no_grad():\n"
              "    for parameter in model.parameters():\n        if parameter.grad is not None:\n"
              "            parameter.add_(parameter.grad, alpha=0.05)\noptimizer.zero_grad()\n" + _FORWARD +
              "value.backward()\nwith torch.no_grad():\n    for parameter, old in zip(model.parameters(), kept):\n        parameter.copy_(old)\n"
              "optimizer.step()\noptimizer.zero_grad()"),
    Loop(name="by_hand", feature="own loops",
         step=_FORWARD + "value.backward()\nwith torch.no_grad():\n    for parameter in model.parameters():\n        if parameter.grad is not None:\n"
              "            parameter -= 1e-3 * parameter.grad\n            parameter.grad = None"),
    Loop(name="two_optimizers", feature="several optimizers", above="others = []",
         step="weights = [p for p in model.parameters() if p.requires_grad]\nif not others:\n"
              "    others.append(torch.optim.Adagrad(weights[::2]))\n" + _FORWARD +
              "value.backward()\noptimizer.step()\nothers[0].step()\noptimizer.zero_grad()\nothers[0].zero_grad()"),
    Loop(name="scheduler", feature="own loops", above="schedulers = []",
         step="if not schedulers:\n    schedulers.append(torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))\n" + _FORWARD + _STEP + "schedulers[0].step()"),
    Loop(name="evaluates", feature="own loops",
         step=_FORWARD + _STEP + "model.eval()\nwith torch.no_grad():\n    score = loss(model(batch[0]), batch)\nmodel.train()\nreturn score"),
    Loop(name="inference_mode", feature="no grad",
         step="with torch.inference_mode():\n    score = loss(model(batch[0]), batch)\n" + _FORWARD + _STEP),
    Loop(name="keeps_history", feature="own loops", above="history = []",
         step=_FORWARD + _STEP + "history.append(value.item())\nif len(history) > 2:\n    history.pop(0)"),
    Loop(name="skip_nonfinite", feature="values",
         step=_FORWARD + "value.backward()\nif torch.isfinite(value):\n    optimizer.step()\noptimizer.zero_grad()"),
    Loop(name="scaled", feature="autocast", above='scaler = torch.amp.GradScaler("cpu", enabled=True)',
         step=_FORWARD + "scaler.scale(value).backward()\nscaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()"),
    Loop(name="in_backward", feature="hooks",
         above="steppers = {}\n\n\ndef step_one(parameter):\n    steppers[parameter].step()\n    steppers[parameter].zero_grad()\n",
         step="if not steppers:\n    for parameter in model.parameters():\n        if parameter.requires_grad:\n"
              "            steppers[parameter] = torch.optim.SGD([parameter], lr=1e-3, momentum=0.9)\n"
              "            parameter.register_post_accumulate_grad_hook(step_one)\n" + _FORWARD + "value.backward()"),
)  # fmt: skip
