"""Pools of memory in one file: what it defines, imports, turns on, takes and gives back."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from memplan.audit.checks.pools import CLOSES, OPENS, POOL_CLASS, TAKES_BACK, is_called_pool, is_handed_on
from memplan.audit.code import FUNCTIONS, Code, Function
from memplan.audit.pool_records import Definition, FilePools, ModuleClass, PoolCalls, PoolClass, PoolSwitch

_MEMORY_POOL = re.compile(
    r"(?:^|_)(?:tensor|buffer|memory|mem|pinned|staging|arena)s?_(?:\w+_)?(?:pool|allocator)s?(?:_|$)"
    r"|(?:Tensor|Buffer|Memory|Pinned|Staging|Arena)\w*(?:Pool|Allocator)(?![a-z])"
)
"""``get_global_memory_pool``, ``MemoryPoolMixin``; neither ``max_pool`` nor ``MemoryPooling``, which are layers."""
_MAYBE = re.compile("pool|alloc|arena", re.IGNORECASE)
"""What every pool, and every function that gives one, has in its name."""
_SWITCH = re.compile(r"(?:^|_)(?:tensor|buffer|memory|mem|pinned|staging)s?_(?:\w+_)?pool(?:s|ing)?$")
_MODULES = frozenset({"Module", "LightningModule", "PreTrainedModel"})


def pools_in(code: Code) -> FilePools:
    """Count the pools of one file; a unit test counts as none."""
    if code.is_test:
        return FilePools()
    speaks_of_pools = _MAYBE.search(code.text) is not None
    modules = tuple(_module(code, node, speaks_of_pools) for node in code.all(ast.ClassDef) if node.bases)
    if not speaks_of_pools:
        return FilePools(modules=modules)
    layers = {each.name for each in modules if each.is_module}
    return FilePools(
        classes=tuple(_pool(code, node) for node in code.all(ast.ClassDef)
                      if POOL_CLASS.match(node.name) and node.name not in layers),
        factories=tuple(_named(code, each) for each in code.functions if _gives_pool(code, each)),
        imported=frozenset(alias.name for node in code.all(ast.ImportFrom) for alias in node.names
                           if is_pool_name(alias.name)),
        used=frozenset(name for name in _loaded(code) if _MAYBE.search(name)),
        switches=tuple(_switches(code)),
        calls=_calls(code),
        modules=modules,
    )  # fmt: skip


def is_pool_name(name: str) -> bool:
    """Does a name speak of a pool of memory?"""
    return POOL_CLASS.match(name) is not None or _MEMORY_POOL.search(name) is not None


def _named(code: Code, node: Function) -> Definition:
    return Definition(name=node.name, file=code.file, line=node.lineno)


def _pool(code: Code, node: ast.ClassDef) -> PoolClass:
    methods = [each.name for each in node.body if isinstance(each, FUNCTIONS)]
    return PoolClass(
        name=node.name,
        file=code.file,
        line=node.lineno,
        hands_out=tuple(name for name in methods if name in OPENS),
        takes_back=tuple(name for name in methods if name in TAKES_BACK),
    )


def _module(code: Code, node: ast.ClassDef, speaks_of_pools: bool) -> ModuleClass:
    bases = [code.qualified(each) for each in node.bases]
    return ModuleClass(
        name=node.name,
        file=code.file,
        line=node.lineno,
        bases=tuple(_last(each) for each in bases),
        is_module="torch" in code.text
        and any(_last(each) in _MODULES or each.startswith("torch.nn.") for each in bases),
        has_pool=speaks_of_pools and any(is_pool_name(name) for name in _identifiers(node)),
    )


def _identifiers(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case _:
                pass


def _gives_pool(code: Code, node: Function) -> bool:
    """A function of the file that gives a pool, by its name, its annotation or what it returns."""
    if not isinstance(code.parent(node), ast.Module) or not _MAYBE.search(node.name):
        return False
    annotated = _last(code.qualified(node.returns))
    returned = [each.value for each in code.inside(node, ast.Return) if isinstance(each, ast.Return) and each.value]
    made = (_last(code.callee(value)) for value in returned)
    if any(POOL_CLASS.match(name) for name in (annotated, *made)):
        return True
    return bool(returned) and _MEMORY_POOL.search(node.name) is not None


def _loaded(code: Code) -> Iterator[str]:
    yield from (each.id for each in code.all(ast.Name) if isinstance(each.ctx, ast.Load))
    yield from (each.attr for each in code.all(ast.Attribute) if isinstance(each.ctx, ast.Load))


def _switches(code: Code) -> Iterator[PoolSwitch]:
    """Parameters and attributes that are true or false where nobody gives them."""
    for name, value, line in (*_parameters(code), *_attributes(code)):
        if _SWITCH.search(name) and isinstance(value, ast.Constant) and isinstance(value.value, bool):
            yield PoolSwitch(name=name, file=code.file, line=line, default=value.value)


def _parameters(code: Code) -> Iterator[tuple[str, ast.expr | None, int]]:
    for function in code.functions:
        given = function.args
        plain = [*given.posonlyargs, *given.args]
        last = plain[len(plain) - len(given.defaults) :]
        for each, default in (
            *zip(last, given.defaults, strict=True),
            *zip(given.kwonlyargs, given.kw_defaults, strict=True),
        ):
            yield each.arg, default, each.lineno


def _attributes(code: Code) -> Iterator[tuple[str, ast.expr | None, int]]:
    for node in code.all(ast.ClassDef):
        for each in node.body:
            match each:
                case ast.AnnAssign(target=target, value=value) | ast.Assign(targets=[target], value=value):
                    yield code.dotted(target), value, each.lineno
                case _:
                    pass


def _calls(code: Code) -> tuple[PoolCalls, ...]:
    """Takes and returns by class; a class that only closes pools is none of them."""
    of_class: dict[str, list[ast.Call]] = defaultdict(list)
    for call in code.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in OPENS | CLOSES and _is_on_pool(code, call.func):
            owner = code.class_of(call)
            of_class[owner.name if owner else ""].append(call)
    counted = (_counted(code, owner, calls) for owner, calls in of_class.items())
    return tuple(each for each in counted if each.taken or each.given_back)


def _is_on_pool(code: Code, method: ast.Attribute) -> bool:
    """Is a method's object a pool of memory, by its name, by what made it, or in a file that has such pools?"""
    if isinstance(method.value, ast.Call):
        return is_pool_name(_last(code.callee(method.value)))
    name = code.dotted(method.value)
    return is_called_pool(name) and (is_pool_name(_last(name)) or any(is_pool_name(each) for each in _known(code)))


def _known(code: Code) -> set[str]:
    """What a file imports and defines."""
    return {_last(each) for each in code.imports.values()} | {each.name for each in code.all(ast.ClassDef)}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _counted(code: Code, owner: str, calls: list[ast.Call]) -> PoolCalls:
    names = [call.func.attr for call in calls if isinstance(call.func, ast.Attribute)]
    taken = [call for call, name in zip(calls, names, strict=True) if name in OPENS]
    scoped = sum(isinstance(code.parent(call), ast.withitem) for call in taken)
    return PoolCalls(
        file=code.file,
        owner=owner,
        taken=len(taken),
        given_back=sum(name in TAKES_BACK for name in names) + scoped,
        handed_on=sum(is_handed_on(code, call) for call in taken) - scoped,
        gives_all_back=any(name in CLOSES - TAKES_BACK for name in names),
    )
