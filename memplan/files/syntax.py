"""Reading Python source as a tree: whatever cannot be read so is one error."""

import ast


def parse_source(text: str | bytes) -> ast.Module:
    """Parse a module.

    Raises:
        SyntaxError: It is no Python, or nested more deeply than Python's own parser goes.
    """
    try:
        return ast.parse(text)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error)) from error
