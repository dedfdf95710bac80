"""`tyrum proto`: the contracts as files, for providers and clients in any language."""

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.options import sub_app

app = sub_app("Export the contracts.")

_SUFFIXES = (".proto", ".json", ".binpb")
_ERROR_FILES = ("error_details.proto", "status.proto")
"""What errors carry, of google.rpc: most languages have them in a library, and not all of them."""


@app.callback()
def proto() -> None:
    """Export the contracts."""


@app.command()
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made when it does not exist.")],
) -> None:
    """Write the .proto files, their descriptor image, digests and handshake test vectors below DIR.

    DIR is then the import root: `protoc -I DIR DIR/tyrum/chat/v1/chat.proto`. What errors
    carry is in google/rpc.
    """
    count = 0
    try:
        for path, source in contract_files():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            count += 1
    except OSError as error:
        raise Failure(f"cannot write below `{directory}`: {error.strerror}") from error
    print(f"{count} files written to {directory}")


def contract_files() -> Iterator[tuple[Path, Traversable]]:
    """Yield every shipped file of the contracts with its place below the import root."""
    yield from _below(resources.files("tyrum"), Path("tyrum"))
    for name in _ERROR_FILES:
        yield Path("google/rpc", name), resources.files("google.rpc") / name


def _below(node: Traversable, place: Path) -> Iterator[tuple[Path, Traversable]]:
    for child in sorted(node.iterdir(), key=lambda entry: entry.name):
        path = place / child.name
        if child.is_dir():
            yield from _below(child, path)
        elif child.name.endswith(_SUFFIXES):
            yield path, child
