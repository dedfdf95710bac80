"""Output of commands: data to stdout as text, json or jsonl; messages to stderr.

Invariant: JSON is protobuf's own mapping with the field names of the contracts, in ASCII, so that it is as
safe on a terminal as text; rich is used only when stdout is a terminal.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.prose import told
from tyrum_gateway.cli.terminal import hung, visible, visible_line

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp


class Names(Protocol):
    """The values of an enum of the contracts."""

    def Name(self, number: Any) -> str:  # noqa: N802 - protobuf's
        """Name a value."""
        ...

    def values(self) -> Sequence[Any]:
        """List all values."""
        ...


class Format(StrEnum):
    """Forms of output."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


def on_terminal() -> bool:
    """Whether a human reads stdout."""
    return sys.stdout.isatty()


def interactive() -> bool:
    """Whether a human can be asked: stdin and stdout are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def as_json(message: "Message") -> dict[str, Any]:
    """Map a message to JSON values; unset fields are present with their default.

    Raises:
        Failure: A value has no JSON form, such as a time outside any calendar.
    """
    from google.protobuf.json_format import Error, MessageToDict  # noqa: PLC0415 - heavy

    try:
        return MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    except Error as error:
        raise Failure(f"the gateway's answer has no JSON form: {error}") from error


def emit(value: object, form: Format) -> None:
    """Print one JSON value: indented as a document, or on one line."""
    print(json.dumps(value, indent=2 if form is Format.JSON else None), flush=True)


def emit_all(messages: Iterable["Message"], form: Format) -> None:
    """Print messages as one JSON array, or one a line."""
    if form is Format.JSON:
        emit([as_json(message) for message in messages], form)
        return
    for message in messages:
        emit(as_json(message), form)


def say(text: str) -> None:
    """Print text from anywhere to stdout."""
    print(visible(text), flush=True)


def prose(text: str, *, indentation: int = 2) -> None:
    """Print a sentence of ours, or one that a provider wrote, to stdout; what goes on below is indented."""
    print(told(visible(text), sys.stdout, indentation=indentation), flush=True)


def note(text: str) -> None:
    """Tell the user something that is not data."""
    print(told(visible(text), sys.stderr), file=sys.stderr, flush=True)


def more(what: str, limit: int) -> str:
    """Say that a list was ended by its limit and not by its end."""
    return f"there may be {what}: --limit {limit} ended the list"


def named(name: str, identifier: str) -> str:
    """Write whom an id stands for: the name with the id behind it, the id alone when no name is known."""
    return f"{visible_line(name)} ({identifier})" if name else identifier


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, an `s` behind it unless it is one: `1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def heading(text: str) -> None:
    """Print a heading: bold on a terminal."""
    styled(visible_line(text), "bold")


def styled(text: str, style: str, end: str = "\n", *, indentation: int = 4) -> None:
    """Print lines in a rich style on a terminal, plainly elsewhere; rows that go on below are marked."""
    row("\n".join(hung("", line, indentation) for line in visible(text).split("\n")), style, end)


def row(text: str, style: str, end: str = "\n") -> None:
    """Print rows that were drawn already in a rich style on a terminal, plainly elsewhere."""
    if not on_terminal() or "NO_COLOR" in os.environ:
        print(text, end=end, flush=True)
        return
    from rich.console import Console  # noqa: PLC0415 - heavy, and only for terminals
    from rich.text import Text  # noqa: PLC0415

    Console(highlight=False, soft_wrap=True).print(Text(text, style=style), end=end)
    sys.stdout.flush()


def fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Print `name: value` lines, values aligned; pairs without a value are left out."""
    present = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in present), default=0) + 1
    for name, value in present:
        print(hung(f"{name + ':':<{width}} ", visible_line(value), width + 1))
    sys.stdout.flush()


def moment(timestamp: "Timestamp") -> str:
    """Write a time in UTC, to the second; empty when it is not set, a number when no calendar has it."""
    if not timestamp.seconds:
        return ""
    try:
        return datetime.fromtimestamp(timestamp.seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(timestamp.seconds)


def enum_word(kind: "Names", value: int, prefix: str) -> str:
    """Write an enum value for people: `TURN_STATE_WAITING_APPROVAL` becomes `waiting approval`.

    One that a newer gateway has and this command does not know stays a number.
    """
    name = kind.Name(value) if value in kind.values() else str(value)
    return name.removeprefix(prefix).lower().replace("_", " ")
