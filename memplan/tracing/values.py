"""Values that fake tensors do not have: what ``.item()`` returns, and how many elements a mask selects.

Knowledge of elements travels with tensors, each kind where it is known:

* the *value* itself, of small tensors made from constants (a loop counter, an optimizer's ``step``): ops on such
  tensors are also run for real; of larger ones until an op does more than copy them;
* the *density* of a mask: the share of elements that are true or one (one-hot routing over E experts: 1/E);
* the number of *classes* of an index tensor (``topk`` over E experts, ``randint(0, V)``), and how often each occurs
  where that differs (``routing``);
* the *last* of positions (``arange(length)``), which a table of learned positions has or has not;
* whether elements are *uniform* draws from [0, 1), which decide what is dropped at random.

``value_rules`` says what each op's results inherit, ``value_answers`` answers the ops that need data. Whatever is not
known is assumed, and the report says so: routing is balanced, plausible or the worst (``routing``), a mask selects
everything, what is asked of all elements holds, what is asked of any does not, numbers are one
(``integers``: but a count of what a mask selects is a count of everything).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memplan.seam.fake import FakeTensor, unset_fake_temporarily
from memplan.seam.pytree import tree_map
from memplan.tracing.draws import DRAWS, EVEN_DRAWS, MOST_DRAWN, SEEDS
from memplan.tracing.expanded import iterated
from memplan.tracing.guesses import Guesses
from memplan.tracing.integers import BOUNDING, COUNTING, bound_of
from memplan.tracing.knowledge import NOTHING, SMALL, Knowledge
from memplan.tracing.nested import tensors_in
from memplan.tracing.router_rules import sorted_of
from memplan.tracing.value_answers import answer_of
from memplan.tracing.value_rules import CONSTANTS, KEEPERS, PICKERS, RESULT_CLASSES, RULES, SORTS, classes_of_dim
from memplan.tracing.viewed import viewed

_WHOLE = frozenset({torch.ops.aten._pack_padded_sequence.default})
"""Ops whose answers have real tensors among them, which say all about themselves."""

_COPYING = frozenset({torch.ops.aten.lift_fresh.default, torch.ops.aten.clone.default, torch.ops.aten.detach.default})
"""Ops whose results hold what their tensor holds: of a program's own data (an array, a list) it is kept, so that what
goes back to NumPy is what came from there."""

TEACHERS = (
    DRAWS | EVEN_DRAWS | SEEDS | frozenset(RULES) | frozenset(RESULT_CLASSES) | CONSTANTS | _WHOLE | COUNTING | _COPYING
)
"""Ops whose results something is known of whatever their arguments are."""


def runs_for_real(func: Any, known: Sequence[Knowledge]) -> bool:
    """Is an op run on values as well? It is where all of them are known and small and none is drawn at random."""
    return torch.Tag.nondeterministic_seeded not in func.tags and all(
        each.value is not None and each.value.numel() <= SMALL for each in known
    )


class Values(Guesses):
    """Answers ops that need data, and keeps track of what is known."""

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op on fake tensors, with an answer of our own where it needs data."""
        answer = answer_of(func)
        if answer is not None:
            return answer(self, func, args, kwargs)
        return iterated(func, args, self.results.run(func, args, kwargs))

    def learn(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, known: Sequence[Knowledge]
    ) -> Sequence[Knowledge]:
        """What is known of each tensor in an op's result; empty for nothing at all.

        Args:
            func: The op, which has run.
            args: Its arguments.
            kwargs: Its keyword arguments.
            result: Its result.
            known: What is known of its tensor arguments, in order.
        """
        if func in DRAWS or func in EVEN_DRAWS or func in SEEDS:
            (rule,) = self._learnt(func, args, kwargs, result, known) or (NOTHING,)
            return (dataclasses.replace(rule, drawn=self.draws.drawn(func, args, result)),)
        learnt = self._learnt(func, args, kwargs, result, known)
        if func in BOUNDING:
            learnt = self._with_bound(func, args, kwargs, result, learnt)
        if not any(each.drawn is not None for each in known):
            return learnt
        return self._with_drawn(func, args, kwargs, result, learnt)

    def _with_bound(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, learnt: Sequence[Knowledge]
    ) -> Sequence[Knowledge]:
        """What was learnt, and how large the elements of the first result may be."""
        if (learnt and learnt[0].value is not None) or not isinstance(args[0], torch.Tensor):
            return learnt
        bound = bound_of(func, args, kwargs, tensors_in(result)[0], self.knowledge_of(args[0]))
        first, *others = learnt or (NOTHING,)
        return learnt if bound == first.bound else [dataclasses.replace(first, bound=bound), *others]

    def _with_drawn(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, learnt: Sequence[Knowledge]
    ) -> Sequence[Knowledge]:
        """What was learnt, and the elements of results where they follow from what was drawn."""
        tensors = tensors_in([*args, *kwargs.values()])
        known = {id(tensor): self.knowledge_of(tensor) for tensor in tensors}
        complete = all(each.value is not None or each.drawn is not None for each in known.values())
        carried = self.draws.carried(func, args, kwargs, result, known) if complete else ()
        made = [*learnt, *(NOTHING for _ in tensors_in(result)[len(learnt) :])]
        drawn = [*carried, *(None for _ in made[len(carried) :])]
        return [
            dataclasses.replace(each, drawn=None if each.value is not None else elements)
            for each, elements in zip(made, drawn, strict=True)
        ]

    def _learnt(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, known: Sequence[Knowledge]
    ) -> Sequence[Knowledge]:
        values = self._elements(func, args, kwargs, result, known)
        if values:
            return [Knowledge(value=value) for value in values]
        if func in _WHOLE:
            # A tensor would keep itself alive by what is known of it: a copy is known.
            with unset_fake_temporarily():
                copies = [None if isinstance(tensor, FakeTensor) else tensor.clone() for tensor in tensors_in(result)]
            return [Knowledge(value=copy) for copy in copies]
        rule = RULES.get(func)
        if rule is not None:
            return (rule(self, args, kwargs, result),)
        if func in RESULT_CLASSES:
            indices = classes_of_dim(RESULT_CLASSES[func])(self, args, kwargs, result)
            return sorted_of(known[0]) if func in SORTS and known else NOTHING, indices
        if known and func in KEEPERS:
            last = None if func in PICKERS else known[0].last
            kept = dataclasses.replace(known[0], value=None, last=last)
            return viewed(func, args, kept, tensors_in(result))
        return ()

    def _elements(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, known: Sequence[Knowledge]
    ) -> list[torch.Tensor]:
        """The elements of results where they follow from what is known; else none."""
        values: list[torch.Tensor] = []
        if func in CONSTANTS or (known and runs_for_real(func, known)):
            values = self._run_for_real(func, args, kwargs, result)
        if not values and func in _COPYING and (data := self._data(args[0])) is not None:
            return [data]
        return values

    def _run_for_real(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> list[torch.Tensor]:
        """The op run on known values, in-place effects included; empty where the result is not small.

        Where its sizes were assumed, it has no elements.
        """
        if any(tensor.numel() > SMALL for tensor in tensors_in(result)):
            return []
        with unset_fake_temporarily():
            real_args, real_kwargs = tree_map(self._real, (args, dict(kwargs)))
            try:
                values = tensors_in(func(*real_args, **real_kwargs))
            except RuntimeError:
                # The CPU has no such kernel, the GPU that is played may (``histc`` of integers).
                return []
            if [each.shape for each in values] != [each.shape for each in tensors_in(result)]:
                return []
            # A constant of the user's own must not change when an in-place op changes what is known of its copy.
            return [value.clone() for value in values] if func in CONSTANTS else values

    def _data(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A copy of the elements of a tensor of a program's own data; None where they are not known, or too many."""
        data = self.knowledge_of(tensor).value if isinstance(tensor, FakeTensor) else tensor
        if data is None or data.numel() > MOST_DRAWN or type(data) is not torch.Tensor:
            return None
        with unset_fake_temporarily():
            return data.detach().clone()

    def _real(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        known = self.knowledge_of(value).value
        # Of a real tensor a copy, for what is known of a view would keep the tensor itself alive.
        return value.clone() if known is None else known
