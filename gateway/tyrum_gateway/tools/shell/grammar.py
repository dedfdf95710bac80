"""The second reader: tree-sitter's bash grammar, a whitelist of its nodes, and commands seen in the rest.

Invariant: a node that is not on the list, an error or a missing node ends the agreement; what the grammar
says counts only together with the strict reader.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tyrum_gateway.tools.shell.script import MAX_WORDS, Sighting

_LANGUAGE = Language(tree_sitter_bash.language())
_MAX_SIGHTINGS = 64
_MAX_NODES = 50_000
_MAX_SIGHTED_BYTES = 2048
"""Of opaque text only so much is looked at: the time that hostile text takes grows faster than its size."""

_CONTAINERS = frozenset({"program", "list", "pipeline"})
_WORDS = frozenset({"word", "number", "raw_string", "string", "concatenation"})
_SIGNS = frozenset({"&&", "||", "|", ";"})
_LITERAL_PARTS = frozenset({"word", "number", "raw_string", "string", "string_content", '"', "concatenation"})


@dataclass(frozen=True, slots=True)
class Outline:
    """Where the grammar sees words, by command, and the signs between; offsets are in bytes."""

    commands: tuple[tuple[tuple[int, int], ...], ...]
    signs: tuple[tuple[str, int], ...]


def outline(source: bytes) -> Outline | None:
    """Parse text and return its outline; None when the tree holds anything but whitelisted nodes."""
    commands: list[tuple[tuple[int, int], ...]] = []
    signs: list[tuple[str, int]] = []
    pending = [Parser(_LANGUAGE).parse(source).root_node]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            return None
        if node.type in _CONTAINERS and node.is_named:
            pending.extend(reversed(node.children))
        elif node.type == "command":
            words = _command(node)
            if words is None:
                return None
            commands.append(words)
        elif node.type in _SIGNS and not node.is_named:
            signs.append((node.type, node.start_byte))
        else:
            return None
    return Outline(tuple(commands), tuple(signs))


def sightings(source: bytes) -> tuple[Sighting, ...]:
    """List commands with literal names in the first 2 KiB of the text, as far as they can be seen."""
    found: list[Sighting] = []
    beginning = source[:_MAX_SIGHTED_BYTES]
    cut = len(beginning) < len(source)
    for node in _nodes(Parser(_LANGUAGE).parse(beginning).root_node):
        if node.type == "command" and (seen := _sighting(node, beginning)) is not None:
            if cut and node.end_byte == len(beginning):
                continue
            found.append(seen)
            if len(found) == _MAX_SIGHTINGS:
                break
    return tuple(found)


def _command(node: Node) -> tuple[tuple[int, int], ...] | None:
    words: list[tuple[int, int]] = []
    for index, child in enumerate(node.children):
        if (index == 0) != (child.type == "command_name"):
            return None
        inner = child
        if index == 0:
            if len(child.children) != 1:
                return None
            inner = child.children[0]
        if inner.type not in _WORDS or not _literal(inner):
            return None
        words.append((child.start_byte, child.end_byte))
    return tuple(words) if words else None


def _literal(node: Node) -> bool:
    return all(
        part.type in _LITERAL_PARTS and not part.is_error and not part.is_missing for part in _nodes(node)
    )


def _nodes(root: Node) -> Iterator[Node]:
    pending, visited = [root], 0
    while pending and visited < _MAX_NODES:
        node = pending.pop()
        visited += 1
        yield node
        pending.extend(reversed(node.children))


def _sighting(node: Node, source: bytes) -> Sighting | None:
    words: list[str] = []
    named = False
    for child in node.children:
        if child.type == "command_name":
            named = True
            child = child.children[0] if child.children else child  # noqa: PLW2901 - the word in it
        elif not named:
            continue  # assignments and redirections before the name
        text = _value(child, source)
        if text is None or len(words) == MAX_WORDS:
            return Sighting(tuple(words), complete=False) if words else None
        words.append(text)
    return Sighting(tuple(words), complete=True) if words and words[0] else None


def _value(node: Node, source: bytes) -> str | None:
    """Return what a word is when it is literal, with its quoting undone."""
    text = source[node.start_byte : node.end_byte].decode(errors="replace")
    match node.type:
        case "word" | "number":
            unescaped = text.replace("\\\n", "")
            return None if any(sign in unescaped for sign in "*?[]{}~") else _unescaped(unescaped)
        case "raw_string":
            return text[1:-1]
        case "ansi_c_string":
            return None if "\\" in text else text[2:-1]
        case "string":
            content = text[1:-1]
            literal = all(child.type in {'"', "string_content"} for child in node.children)
            return content if literal and "\\" not in content else None
        case "concatenation":
            parts = [_value(child, source) for child in node.children]
            return None if None in parts else "".join(part for part in parts if part is not None)
        case _:
            return None


def _unescaped(text: str) -> str:
    rest = iter(text)
    return "".join(next(rest, "") if character == "\\" else character for character in rest)
