"""``memplan schema``: what memplan's JSON looks like, for those who read it and for editors."""

from typing import Annotated

import typer

from memplan.cli.console import write_plain


def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A document such as estimate or gate.", show_default=False)
    ] = None,
) -> None:
    """Print the JSON Schema of a document, or list them all."""
    import json

    from memplan.report import documents

    if name is None:
        write_plain("".join(f"{each}\n" for each in documents.names()))
        return
    write_plain(json.dumps(documents.schema(name), indent=2) + "\n")
