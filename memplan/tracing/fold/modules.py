"""A model's modules as a stream of tokens: what is alike in all its blocks shows before a step is traced.

Blocks may differ beyond those that a shallow model has (the last ones with another attention, say). The whole model,
built without memory and not run, then has another stream than the one that shallow models promise.
"""

from collections.abc import Iterator

import torch

from memplan.tracing.fold.stream import TokenStream, stream_of
from memplan.tracing.fold.words import Vocabulary, taken_apart

_PLAIN = (bool, float, complex, str, type(None), torch.dtype, torch.Size)
"""Types of attributes that must be alike in all blocks; whole numbers may count them."""


def modules_of(model: torch.nn.Module, words: Vocabulary) -> TokenStream:
    """Return every module and tensor of a model as tokens, in order.

    Args:
        model: Built, perhaps without memory.
        words: Vocabulary of all models that are compared.
    """
    tokens = [*_modules(model, words), *_tensors(model, words)]
    return stream_of([word for word, _ in tokens], [integers for _, integers in tokens])


def _modules(model: torch.nn.Module, words: Vocabulary) -> Iterator[tuple[int, tuple[int, ...]]]:
    for path, module in model.named_modules():
        name, numbers = taken_apart(path)
        fields = sorted((key, value) for key, value in vars(module).items() if not key.startswith("_"))
        kinds = [(key, _kind(value)) for key, value in fields if type(value) is not int]
        counts = [(key, value) for key, value in fields if type(value) is int]
        kind = type(module)
        word = words.number(kind.__module__, kind.__qualname__, name, *kinds, *(key for key, _ in counts))
        yield word, (*numbers, *(value for _, value in counts))


def _tensors(model: torch.nn.Module, words: Vocabulary) -> Iterator[tuple[int, tuple[int, ...]]]:
    for path, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        name, numbers = taken_apart(path)
        yield words.number(name, tuple(tensor.shape), tensor.dtype, tensor.requires_grad), numbers


def _kind(value: object) -> object:
    """What must be alike of an attribute: all of a plain one, of any other its type."""
    if isinstance(value, list | tuple):
        return tuple(map(_kind, value)) if all(isinstance(each, (*_PLAIN, int)) for each in value) else type(value)
    return repr(value) if isinstance(value, _PLAIN) else type(value)
