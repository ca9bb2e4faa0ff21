"""What memplan replaces in torch and in other libraries: one table of it, and the only ways to do it.

A name that a library no longer has would change figures without a word. So everything that is replaced stands in
``patches``, with the reason and the source that it follows, and what a release lacks ends in ``SeamError``.
"""
