"""Pools of memory: what is taken must go back, under a name that one finds."""

import ast
import re
from collections.abc import Iterator

from memplan.audit.code import FUNCTIONS, Code
from memplan.audit.hits import hit, words
from memplan.audit.records import Hit

PAIRS: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (frozenset({"allocate", "alloc", "malloc"}), frozenset({"free", "deallocate", "dealloc"})),
    (frozenset({"acquire"}), frozenset({"release"})),
    (
        frozenset({"take", "get_buffer", "borrow"}),
        frozenset({"give", "give_back", "put", "put_buffer", "return_buffer", "return_"}),
    ),
    (frozenset({"checkout"}), frozenset({"checkin"})),
)
"""What hands out and what takes back, in families of names."""
OPENS = frozenset().union(*(opens for opens, _ in PAIRS))
TAKES_BACK = frozenset().union(*(closes for _, closes in PAIRS))
CLOSES = TAKES_BACK | {"release_all", "free_all", "reset", "close", "give_all_back"}
_POOL = re.compile(r"(?:^|_)(?:\w*pool|arena|allocator|buffer_cache|staging)$", re.IGNORECASE)
_OTHER_POOLS = re.compile(
    r"thread|process|executor|worker|conn|session|avg|max|adaptive|spatial|attention|roi|lp_|pooling|str|(?<!b)lock",
    re.IGNORECASE,
)
_MEMORY = re.compile(r"pool|buffer|memory|(?:^|_)mem_|arena|staging", re.IGNORECASE)
_MEMORY_MODULES = re.compile(r"^memplan\.runtime\.pools|^torch\.cuda\.(?:memory\.)?(?:MemPool|CUDAPluggableAllocator)")
"""What says that a pool holds memory."""
POOL_CLASS = re.compile(
    r"^(?:\w*(?:Tensor|Buffer|Memory|Mem(?![a-z])|Pinned|Staging|Block|Arena)\w*(?:Pool|Allocator)|MemPool|BufferStore)$"
)


def not_given_back(code: Code) -> Iterator[Hit]:
    """MA081."""
    for call in code.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in OPENS:
            continue
        name = code.dotted(func.value)
        if not is_called_pool(name) or is_handed_on(code, call):
            continue
        if _is_of_memory(code, name) and not _closed_somewhere(code, call, name):
            yield hit(code, "MA081", call, f"{words(call)} takes from {name}, and nothing gives it back")


def is_called_pool(name: str) -> bool:
    """Is a dotted name that of a pool, and not of one of threads or connections?"""
    last = name.rpartition(".")[2]
    return _POOL.search(last) is not None and not _OTHER_POOLS.search(last)


def _is_of_memory(code: Code, name: str) -> bool:
    """By its name, that of its class, or the pools that the file imports: Pyro's allocators hand out dimensions."""
    if _MEMORY.search(name.rpartition(".")[2]) or any(_MEMORY_MODULES.match(each) for each in code.imports.values()):
        return True
    made = (each.value for each in code.all(ast.Assign) if any(code.dotted(to) == name for to in each.targets))
    return any(_MEMORY.search(code.callee(value)) or _MEMORY_MODULES.match(code.callee(value)) for value in made)


def is_handed_on(code: Code, call: ast.Call) -> bool:
    """In a with block, returned, yielded, passed to another call, put into a container or an attribute."""
    parent = code.parent(call)
    if isinstance(parent, ast.Await):
        parent = code.parent(parent)
    if isinstance(
        parent, ast.withitem | ast.Return | ast.Yield | ast.Call | ast.keyword | ast.Tuple | ast.List | ast.Dict
    ):
        return True
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return not isinstance(parent, ast.Expr | ast.Assign)
    name, scope = parent.targets[0].id, code.names_scope(call)
    for each in ast.walk(scope):
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load):
            user = code.parent(each)
            if (
                isinstance(user, ast.Return | ast.Yield | ast.withitem | ast.Tuple | ast.List | ast.Dict)
                or (isinstance(user, ast.Assign) and not isinstance(user.targets[0], ast.Name))
                or (isinstance(user, ast.Attribute) and user.attr in CLOSES | {"release", "close"})
            ):
                return True
    return False


def _closed_somewhere(code: Code, call: ast.Call, name: str) -> bool:
    place: ast.AST = (
        (code.class_of(call) or code.names_scope(call)) if name.startswith("self.") else code.names_scope(call)
    )
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
        and code.dotted(each.func.value) == name and each.func.attr in CLOSES
        for each in ast.walk(place)
    )  # fmt: skip


def never_used(code: Code) -> Iterator[Hit]:
    """MA082."""
    names = {each.id for each in code.all(ast.Name) if isinstance(each.ctx, ast.Load)}
    text = {each.value for each in code.all(ast.Constant) if isinstance(each.value, str)}
    for node in code.all(ast.ImportFrom):
        for alias in node.names:
            local = alias.asname or alias.name
            # ``import X as X`` and a name in __all__ hand it on.
            if POOL_CLASS.match(alias.name) and local not in names | text and alias.asname != alias.name:
                yield hit(code, "MA082", alias, f"{local} is imported and never used")
    for assign in code.all(ast.Assign):
        target = assign.targets[0]
        if not isinstance(target, ast.Name) or not isinstance(code.scope(assign), FUNCTIONS):
            continue
        made = code.callee(assign.value).rpartition(".")[2]
        if POOL_CLASS.match(made) and target.id not in names:
            yield hit(code, "MA082", assign, f"{target.id} is built and never used")


def unmatched_names(code: Code) -> Iterator[Hit]:
    """MA083."""
    for node in code.all(ast.ClassDef):
        if not re.search(r"(?:Pool|Allocator|Arena)$", node.name) or _OTHER_POOLS.search(node.name):
            continue
        methods = {each.name for each in node.body if isinstance(each, FUNCTIONS)}
        for opens, closes in PAIRS:
            handed, others = methods & opens, methods & TAKES_BACK
            if handed and others and not methods & closes and not _gives_contexts(code, node, handed):
                back = ", ".join(f"{each}()" for each in sorted(others))
                yield hit(code, "MA083", node, f"{node.name} hands out by {min(handed)}() and takes back by {back}")


def _gives_contexts(code: Code, node: ast.ClassDef, names: set[str]) -> bool:
    """A context manager takes back by itself."""
    return any(
        isinstance(each, FUNCTIONS) and each.name in names
        and any("contextmanager" in code.qualified(one) for one in each.decorator_list)
        for each in node.body
    )  # fmt: skip
