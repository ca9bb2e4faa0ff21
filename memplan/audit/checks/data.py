"""Data loaders, data sets and checkpoint files."""

import ast
import re
from collections.abc import Iterator

from memplan.audit.code import Code
from memplan.audit.hits import after, constant, forwards_keywords, hit, keyword, words
from memplan.audit.records import Hit
from memplan.audit.steps import is_over_epochs, trains

_LOADER = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_MANY = 64
"""Batches ahead that are many: 4 workers and the default make 8."""
_DEVICE = re.compile(r"(?:^|[._])(?:device|gpu|cuda)\w*$", re.IGNORECASE)
_WHOLE = re.compile(
    r"^(?:(?:self\.)?(?:X_train|x_train|train_x|trainX|train_data|train_images|train_set|trainset|train_inputs|"
    r"train_features|full_dataset|dataset\.data|train_dataset\.data|trainset\.data))$"
)
_WEIGHTS = re.compile(r"ckpt|checkpoint|weight|state|model|snapshot|resume|pretrain|\.pth\b", re.IGNORECASE)
_NO_WEIGHTS = re.compile(
    r"rng|scheduler|scaler|args\.bin|training_args|vocab|config|stat(?:s|istics)\b|bytesio|buffer|dataset|metadata|"
    r"cache|feature",
    re.IGNORECASE,
)
_GPU = re.compile(r"^(?:cuda|xpu|npu|hip)(?::\d+)?$")


def on_device_in_workers(code: Code) -> Iterator[Hit]:
    """MA061."""
    collates = {
        code.dotted(given).rpartition(".")[2]
        for call in code.all(ast.Call) if (given := keyword(call, "collate_fn")) is not None
    }  # fmt: skip
    for function in code.functions:
        holder = code.parent(function)
        item = function.name == "__getitem__" and isinstance(holder, ast.ClassDef) and _is_dataset(code, holder)
        if not item and function.name not in collates - {""}:
            continue
        for call in code.calls(function):
            if _moves(code, call):
                yield hit(
                    code,
                    "MA061",
                    call,
                    f"{function.name}() runs in worker processes, and {words(call)} needs a GPU there",
                )
                break


def _is_dataset(code: Code, holder: ast.ClassDef) -> bool:
    known = ("Dataset", "IterableDataset", "TensorDataset", "VisionDataset")
    return any(code.qualified(base).rpartition(".")[2] in known for base in holder.bases)


def _moves(code: Code, call: ast.Call) -> bool:
    """``x.cuda()``, ``x.to(device)``, ``torch.tensor(…, device=device)``; not ``.to("cpu")`` or ``.to(dtype)``."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr == "cuda":
        return True
    place = keyword(call, "device") or (call.args[0] if func.attr == "to" and call.args else None)
    if place is None or (func.attr != "to" and not code.callee(call).startswith("torch.")):
        return False
    literal = constant(place)
    if isinstance(literal, str):
        return _GPU.match(literal) is not None
    name = code.dotted(place)
    # ``other.device`` follows a tensor that is already somewhere.
    return (
        name.count(".") <= 1
        and name.partition(".")[0] in ("device", "self", "args", "cfg", "config", "opt")
        and (_DEVICE.search(name) is not None)
    )


def _loaders(code: Code) -> Iterator[ast.Call]:
    for call in code.all(ast.Call):
        if code.callee(call) in _LOADER:
            yield call


def fetched_ahead(code: Code) -> Iterator[Hit]:
    """MA063."""
    for loader in _loaders(code):
        factor, workers = constant(keyword(loader, "prefetch_factor")), constant(keyword(loader, "num_workers"))
        if not isinstance(factor, int) or isinstance(factor, bool):
            continue
        known = workers if isinstance(workers, int) else 4
        if factor * known >= _MANY:
            yield hit(code, "MA063", loader, f"prefetch_factor={factor} for each worker: {factor * known} batches wait")


def loader_in_loop(code: Code) -> Iterator[Hit]:
    """MA064."""
    for loader in _loaders(code):
        workers = keyword(loader, "num_workers")
        loops = code.loops(loader)
        if workers is None or constant(workers) == 0 or not loops or not trains(code, loops[0]):
            continue
        if (
            is_over_epochs(code, loops[0])
            and not _is_trial(loops[0])
            and not any(isinstance(each, ast.If) for each in code.above(loader))
        ):
            yield hit(code, "MA064", loader, "worker processes are started again in every round of the training loop")


def _is_trial(loop: ast.AST) -> bool:
    target = getattr(loop, "target", None)
    return target is not None and re.search(r"fold|trial|seed|split|round", ast.unparse(target)) is not None


def whole_data_set(code: Code) -> Iterator[Hit]:
    """MA065."""
    for call in code.all(ast.Call):
        func = call.func
        if (
            isinstance(func, ast.Attribute)
            and func.attr in ("to", "cuda")
            and _moves(code, call)
            and not code.loops(call)
        ):
            name = code.dotted(func.value)
            if _WHOLE.match(name):
                yield hit(code, "MA065", call, f"all of {name} is moved to the device at once")


def loaded_onto_gpu(code: Code) -> Iterator[Hit]:
    """MA071."""
    for call in code.all(ast.Call):
        if code.callee(call) != "torch.load" or forwards_keywords(call) or not _is_checkpoint(code, call):
            continue
        place = keyword(call, "map_location") or (call.args[1] if len(call.args) > 1 else None)
        if place is None or (isinstance(place, ast.Constant) and place.value is None):
            last = ([*call.args, *(each.value for each in call.keywords)] or [call.func])[-1]
            if constant(keyword(call, "mmap")) is True:
                continue
            edits = () if place is not None else (after(code, last, ', map_location="cpu"'),)
            yield hit(
                code, "MA071", call, "torch.load without map_location loads to where the file was saved from", *edits
            )
        elif isinstance(constant(place), str) and _GPU.match(str(constant(place))):
            yield hit(code, "MA071", call, f"torch.load onto {constant(place)!r}, beside the model that takes it in")


def _is_checkpoint(code: Code, call: ast.Call) -> bool:
    """Weights, by what is done with them or by their name; not data, statistics or a random generator's state."""
    named = ast.unparse(call.args[0]).lower() if call.args else ""
    random_states, takers = _done_with_states(code, code.names_scope(call))
    if _NO_WEIGHTS.search(named) or random_states:
        return False
    statement = code.statement(call)
    targets = [code.dotted(each) for each in statement.targets] if isinstance(statement, ast.Assign) else []
    if any(_WEIGHTS.search(name) for name in [named, *targets]):
        return True
    return any(
        each is call or (isinstance(each, ast.Name) and each.id in targets)
        for taker in takers
        for each in ast.walk(taker)
    )


def _done_with_states(code: Code, scope: ast.AST) -> tuple[bool, list[ast.Call]]:
    """Return whether a scope handles a random generator's state, and its calls that take weights in."""
    if ("states", scope) not in code.kept:
        calls = [(code.dotted(call.func), call) for call in code.calls(scope)]
        takers = [call for name, call in calls if name.endswith("load_state_dict")
                  or (isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict")]  # fmt: skip
        code.kept["states", scope] = any("rng_state" in name for name, _ in calls), takers
    states: tuple[bool, list[ast.Call]] = code.kept["states", scope]
    return states
