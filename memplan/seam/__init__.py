"""What memplan knows of the inside of torch and of other libraries: one table of it, and the only ways to it.

A name that a library no longer has would change figures without a word. So every private name that memplan uses, and
everything that it replaces, stands in a table, with the reason and the source. What a release lacks ends in
``SeamError``.

- ``patches`` lists what is replaced; ``replace`` and ``dispatcher`` replace it.
- ``autograd``, ``compiler``, ``distributed``, ``fake``, ``functorch``, ``memory``, ``modes``, ``operators``, ``pytree``
  and ``tensors`` list what is used, and hand it out: ``from memplan.seam.fake import FakeTensor``.
- ``table`` has all rows of both.
"""
