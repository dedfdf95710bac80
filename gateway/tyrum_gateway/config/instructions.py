"""Instructions that stand in a file of their own, beside the configuration."""

from collections.abc import Iterator
from pathlib import Path as FilePath

from tyrum_gateway.config import document
from tyrum_gateway.config.document import Scalar, descend, select
from tyrum_gateway.config.problems import Problem
from tyrum_gateway.config.regular_file import read_regular_file

LONGEST = 32_768
"""Characters of instructions, wherever they stand."""

_MOST_BYTES = 4 * LONGEST
"""So many bytes have at least `LONGEST` characters."""


class InstructionsUnusable(Exception):
    """The file cannot be taken as instructions; says why, without a word of it."""


def read_instructions(path: FilePath) -> str:
    """Read the text of a file.

    Raises:
        InstructionsUnusable: It cannot be read, is no regular file, no UTF-8, or longer than `LONGEST`.
    """
    try:
        data = read_regular_file(path, limit=_MOST_BYTES)
    except OSError as error:
        raise InstructionsUnusable(f"this file cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(data) > _MOST_BYTES:
            raise InstructionsUnusable(_TOO_LONG) from None
        line = data.count(b"\n", 0, error.start) + 1
        raise InstructionsUnusable(f"this file is not UTF-8 (in its line {line})") from None
    if len(text) > LONGEST:
        raise InstructionsUnusable(_TOO_LONG)
    if "\0" in text:
        raise InstructionsUnusable("this file holds a NUL character: it is no text")
    return text


_TOO_LONG = f"this file has more than {LONGEST:,} characters, the most that instructions may have"


def instructions(root: document.Mapping, file: str, directory: FilePath) -> Iterator[Problem]:
    """List what is wrong with the files that agents name for their instructions."""
    for path, node in select(root, ("agents", "*", "instructions_file")):
        if descend(root, *path[:-1], "instructions") is not None:
            message = "`instructions` is given besides: keep one of the two"
            yield Problem(file, node.place, path, "given_twice", message)
        named = node.value if isinstance(node, Scalar) else None
        if not isinstance(named, str) or not named or "\0" in named:
            continue  # told by its type
        try:
            read_instructions(directory / named)
        except InstructionsUnusable as error:
            yield Problem(file, node.place, path, "file_unusable", str(error))
