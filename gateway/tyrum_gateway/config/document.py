"""Reads YAML into a tree in which every key and value knows its place.

YAML 1.2 with the core schema and no more: `yes`, `1:30` and dates are text, `017` is seventeen. Anchors,
aliases, merge keys, tags and further documents are refused where they stand, before anything expands, so the
work is bounded by the size of the file. A duplicate key is a problem, never the silent winner.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from tyrum_gateway.config.problems import START, Path, Place, Problem, show_key

MAX_BYTES = 1024 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 20
MAX_INTEGER = 2**53 - 1
"""Beyond it JSON numbers are no longer exact."""
MAX_LINE = 64 * 1024

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)

# What the scanner says, as far as it quotes nothing of the file, in words an operator can act on.
_SYNTAX = (
    ("found character '\\t'", "a tab cannot indent; use spaces"),
    ("found a tab character", "a tab cannot indent; use spaces"),
    ("mapping values are not allowed", "a `:` is not expected here; quote the text or check the indentation"),
    ("expected <block end>", "the indentation does not fit the lines above"),
    ("could not find expected ':'", "a key without `: ` after it"),
    ("found unexpected end of stream", "the quote that opens here never closes"),
    ("expected ',' or ']'", "a `[` that never closes, or a missing comma"),
    ("expected ',' or '}'", "a `{` that never closes, or a missing comma"),
    ("found unknown escape", "an unknown escape in double quotes; use single quotes for a literal backslash"),
    ("found undefined tag handle", "tags are not supported"),
)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value."""

    place: Place
    value: bool | int | float | str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    place: Place
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping and what it holds."""

    place: Place
    """Of the key."""
    value: "Node"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys in the order of the file; of a duplicate key the first."""

    place: Place
    entries: dict[str, Entry]


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Document:
    """A file as far as it could be read."""

    root: Mapping | None
    problems: tuple[Problem, ...]
    unusable: frozenset[Path]
    """Values that a problem already covers; what is said about them further on is noise."""


def plain(node: Node) -> Any:
    """Return the tree as dictionaries, lists and scalars."""
    match node:
        case Scalar(value=value):
            return value
        case Sequence(items=items):
            return [plain(item) for item in items]
        case Mapping(entries=entries):
            return {key: plain(entry.value) for key, entry in entries.items()}


def descend(node: Node | None, *path: str | int) -> Node | None:
    """Follow `path`; None where it leads nowhere."""
    for part in path:
        if isinstance(node, Mapping) and isinstance(part, str) and part in node.entries:
            node = node.entries[part].value
        elif isinstance(node, Sequence) and isinstance(part, int) and 0 <= part < len(node.items):
            node = node.items[part]
        else:
            return None
    return node


def select(node: Node | None, pattern: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Find the nodes at `pattern`, in which `*` stands for every key or item."""
    if node is None:
        return
    if not pattern:
        yield path, node
        return
    step, rest = pattern[0], pattern[1:]
    match node:
        case Mapping(entries=entries):
            for key in list(entries) if step == "*" else [step]:
                yield from select(descend(node, key), rest, (*path, key))
        case Sequence(items=items) if step == "*":
            for index, item in enumerate(items):
                yield from select(item, rest, (*path, index))
        case _:
            return


def read_document(content: bytes, file: str) -> Document:
    """Parse the content of a file, naming it `file` in problems; never raises for bad content."""
    if len(content) > MAX_BYTES:
        return _refused(file, START, "too_large", f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        return _refused(file, _place_after(before), "encoding", "the file is not valid UTF-8 here")
    if unprintable := _UNPRINTABLE.search(text):
        place = _place_after(text[: unprintable.start()])
        return _refused(file, place, "encoding", f"control character U+{ord(unprintable[0]):04X}")
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > MAX_LINE:  # some scans take time quadratic in the length of a line
            return _refused(file, Place(number, 1), "too_large", f"a line longer than {MAX_LINE} characters")
    return _Reader(file).read(text)


def _refused(file: str, place: Place, code: str, message: str) -> Document:
    return Document(None, (Problem(file, place, (), code, message),), frozenset())


def _place_after(text: str) -> Place:
    return Place(text.count("\n") + 1, len(text) - text.rfind("\n"))


class _Unreadable(Exception):
    """Reading stops here."""

    def __init__(self, place: Place, code: str, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.code = code
        self.message = message


class _Reader:
    """Turns the events of one text into a tree, collecting what is refused on the way."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self._unusable: set[Path] = set()
        self._nodes = 0

    def read(self, text: str) -> Document:
        root: Node | None = None
        # An iterator, so that a hostile text is left as soon as it passes a bound.
        events = YAML(typ="rt", pure=True).parse(text)
        try:
            root = self._document(events)
        except _Unreadable as stop:
            self._report(stop.place, (), stop.code, stop.message)
        except MarkedYAMLError as error:
            self._report(*_syntax_error(error))
        except YAMLError:
            self._report(START, (), "syntax", "not valid YAML")
        if root is not None and not isinstance(root, Mapping):
            empty = isinstance(root, Scalar) and root.value is None
            if empty:
                self._report(root.place, (), "empty", "the file holds no settings")
            else:
                self._report(root.place, (), "type", "the top level must be a mapping of settings")
            root = None
        return Document(root, tuple(self._problems), frozenset(self._unusable))

    def _document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise _Unreadable(
                        _place(event), "documents", "only one YAML document is read; remove `---`"
                    )
                if event.version not in (None, (1, 2)):
                    raise _Unreadable(_place(event), "yaml_version", "only YAML 1.2 is read")
            elif isinstance(event, ScalarEvent | AliasEvent | MappingStartEvent | SequenceStartEvent):
                root = self._node(event, events, ())
        return root if root is not None else Scalar(START, None)

    def _node(self, event: Any, events: Iterator[Any], path: Path) -> Node:
        place = _place(event)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _Unreadable(place, "too_large", f"more than {MAX_NODES} values")
        if len(path) > MAX_DEPTH:
            raise _Unreadable(place, "too_deep", f"nested deeper than {MAX_DEPTH} levels")
        self._refuse_sharing(event, place, path)
        match event:
            case MappingStartEvent():
                return self._mapping(place, events, path)
            case SequenceStartEvent():
                return self._sequence(place, events, path)
            case ScalarEvent():
                return Scalar(place, self._scalar(event, place, path))
            case _:
                return Scalar(place, None)

    def _refuse_sharing(self, event: Any, place: Place, path: Path) -> None:
        if isinstance(event, AliasEvent):
            self._refuse(place, path, "alias", "aliases are not supported; write the value out")
        elif event.anchor is not None:
            self._refuse(
                place, path, "anchor", "anchors are not supported; write the value out at each place"
            )
        elif event.tag is not None:
            self._refuse(place, path, "tag", "tags are not supported")

    def _sequence(self, place: Place, events: Iterator[Any], path: Path) -> Sequence:
        items: list[Node] = []
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            items.append(self._node(event, events, (*path, len(items))))
        return Sequence(place, tuple(items))

    def _mapping(self, place: Place, events: Iterator[Any], path: Path) -> Mapping:
        entries: dict[str, Entry] = {}
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            key_place = _place(event)
            key, usable = self._key(event, key_place, path)
            # The value of a refused key is read all the same: it may hold further problems.
            held = next(events)
            value = self._node(held, events, (*path, key))
            if isinstance(value, Scalar) and not _is_written(held):
                value = Scalar(key_place, value.value)
            if key in entries:
                self._report(
                    key_place, (*path, key), "duplicate_key", _duplicate(path, key, entries[key].place)
                )
            elif usable:
                entries[key] = Entry(key_place, value)
        return Mapping(place, entries)

    def _key(self, event: Any, place: Place, path: Path) -> tuple[str, bool]:
        """Return the key and whether it may be used."""
        if isinstance(event, AliasEvent):
            self._refuse_sharing(event, place, path)
            return "*", False
        if not isinstance(event, ScalarEvent):
            raise _Unreadable(place, "key", "a key must be text")
        text = str(event.value)
        self._refuse_sharing(event, place, (*path, text))
        if _SURROGATE.search(text):
            self._report(place, path, "encoding", "an escape that stands for half a character")
            return text, False
        if event.implicit[0]:
            if text == "<<":
                self._report(place, path, "merge_key", "merge keys are not supported; write the keys out")
                return text, False
            if not isinstance(_resolve(text), str):
                self._report(place, path, "key", "a key must be text; quote it")
                return text, False
        return text, True

    def _scalar(self, event: ScalarEvent, place: Place, path: Path) -> bool | int | float | str | None:
        text = str(event.value)
        if _SURROGATE.search(text):
            self._refuse(place, path, "encoding", "an escape that stands for half a character")
            return None
        if not event.implicit[0]:
            return text
        value = _resolve(text)
        if isinstance(value, int | float) and not abs(value) <= MAX_INTEGER:
            self._refuse(place, path, "number", "a number beyond ±(2^53 - 1); quote it to make it text")
            return None
        return value

    def _refuse(self, place: Place, path: Path, code: str, message: str) -> None:
        self._unusable.add(path)
        self._report(place, path, code, message)

    def _report(self, place: Place, path: Path, code: str, message: str) -> None:
        self._problems.append(Problem(self._file, place, path, code, message))


def _is_written(event: Any) -> bool:
    """Tell a value from its absence, whose mark lies wherever the next thing begins."""
    return not isinstance(event, ScalarEvent) or bool(event.value) or not event.implicit[0]


def _duplicate(path: Path, key: str, first: Place) -> str:
    if path == ("profiles", "isolation") or path[-2:] == ("profiles", "isolation"):
        return (
            f"profile {show_key(key)} is declared twice, first at {first}; isolation is exclusive: "
            "one provider serves a profile, and none is chosen between two"
        )
    if key in {"provider", "isolation"} and "profiles" in path:
        return (
            f"two values for one exclusive scope, the first at {first}: one provider serves it, and none is "
            "chosen between two"
        )
    return f"duplicate key, first at {first}"


def _place(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _resolve(text: str) -> bool | int | float | str | None:
    """Give a plain scalar its type by the YAML 1.2 core schema."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _DECIMAL.fullmatch(text):
        return int(text) if len(text) <= MAX_DIGITS else math.inf
    if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return int(text, 0) if len(text) <= MAX_DIGITS else math.inf
    if _FLOAT.fullmatch(text):
        return math.inf if text[-1] in "fFnN" else float(text)
    return text


def _syntax_error(error: MarkedYAMLError) -> tuple[Place, Path, str, str]:
    said = str(error.problem or "")
    known = (words for begin, words in _SYNTAX if said.startswith(begin))
    mark = error.problem_mark or error.context_mark
    # An unclosed quote is found at the end of the file; the place to look at is where it opens.
    if error.context_mark is not None and "end of stream" in said:
        mark = error.context_mark
    place = START if mark is None else Place(mark.line + 1, mark.column + 1)
    return place, (), "syntax", next(known, "not valid YAML here; quote the text if it is meant literally")
