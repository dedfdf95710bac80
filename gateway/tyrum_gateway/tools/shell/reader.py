"""The strict reader: a few characters and operators whose meaning in bash is beyond doubt, and nothing else.

Invariant: every character of accepted text is accounted for, as part of a word, a blank or an operator. What
is allowed is listed; what is not listed is refused, whatever it might mean.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tyrum_gateway.tools.shell.reserved import BUILTINS, RESERVED_WORDS
from tyrum_gateway.tools.shell.script import (
    MAX_COMMANDS,
    MAX_WORDS,
    Operator,
    Script,
    SimpleCommand,
)
from tyrum_gateway.tools.visible import is_plain

_BARE = re.compile(r"[A-Za-z0-9_./:,+@%=-]+")
_SINGLE = re.compile(r"'([^'\n]*)'")
_DOUBLE = re.compile(r'"([^"$`\\!\n]*)"')
_OPERATOR = re.compile(r"&&|\|\|(?!&)|\|(?![|&])|;(?![;&])|\n")
_BLANK = re.compile(r"[ \t]+")
_NAME = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:,+@%-]*")
"""A command's name: ASCII, no `=`, and no `%` that could name a job."""


class Unreadable(Exception):
    """The text is not literal simple commands; says what stands where."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its place in the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Joint:
    """An operator with its place in the text."""

    operator: Operator
    line_end: bool
    position: int


@dataclass(slots=True)
class Reading:
    """Words by command, and what joins the commands."""

    commands: list[list[Word]] = field(default_factory=list)
    joints: list[Joint] = field(default_factory=list)
    """Between commands, and perhaps one after the last."""

    def script(self) -> Script:
        """Leave out the places."""
        return Script(
            tuple(SimpleCommand(tuple(word.text for word in words)) for words in self.commands),
            tuple(joint.operator for joint in self.joints[: len(self.commands) - 1]),
        )


def read(text: str) -> Reading:
    """Read literal simple commands.

    Raises:
        Unreadable: The text holds anything else.
    """
    reading = Reading()
    words: list[Word] = []
    for item in _items(text):
        if isinstance(item, Word):
            if not words:
                _check_name(item)
            words.append(item)
            if len(words) > MAX_WORDS:
                raise Unreadable(f"more than {MAX_WORDS} words in one command", item.start)
            continue
        if words:
            reading.commands.append(words)
            reading.joints.append(item)
            words = []
        elif not item.line_end:
            raise Unreadable(f"`{item.operator.value}` without a command before it", item.position)
        # An empty line says nothing, and neither does a line end after an operator.
    if words:
        reading.commands.append(words)
    elif reading.joints and reading.joints[-1].operator is not Operator.THEN:
        raise Unreadable("no command after the operator", reading.joints[-1].position)
    if not reading.commands:
        raise Unreadable("no command", 0)
    if len(reading.commands) > MAX_COMMANDS:
        raise Unreadable(f"more than {MAX_COMMANDS} commands", reading.commands[MAX_COMMANDS][0].start)
    return reading


def _items(text: str) -> Iterator[Word | Joint]:
    position = 0
    while position < len(text):
        if blank := _BLANK.match(text, position):
            position = blank.end()
        elif operator := _OPERATOR.match(text, position):
            sign = operator[0]
            yield Joint(Operator.THEN if sign == "\n" else Operator(sign), sign == "\n", position)
            position = operator.end()
        else:
            word = _word(text, position)
            yield word
            position = word.end


def _word(text: str, start: int) -> Word:
    parts: list[str] = []
    position = start
    while position < len(text):
        if bare := _BARE.match(text, position):
            parts.append(bare[0])
            position = bare.end()
        elif quoted := _SINGLE.match(text, position) or _DOUBLE.match(text, position):
            if not is_plain(quoted[1]):
                raise Unreadable("a character that does not show itself", position)
            parts.append(quoted[1])
            position = quoted.end()
        elif text[position] in " \t\n|&;":
            break
        else:
            raise Unreadable(_what(text, position), position)
    if position == start:
        raise Unreadable(_what(text, position), position)
    return Word("".join(parts), start, position)


def _what(text: str, position: int) -> str:
    character = text[position]
    if character in "'\"":
        return "a quoted text that is not closed on its line or not literal"
    if not is_plain(character) or not character.isascii():
        return f"the character U+{ord(character):04X}"
    return f"`{character}`"


def _check_name(word: Word) -> None:
    if word.text in RESERVED_WORDS:
        raise Unreadable(f"`{word.text}` is a reserved word of bash", word.start)
    if word.text in BUILTINS:
        raise Unreadable(f"`{word.text}` is a builtin of bash", word.start)
    if not _NAME.fullmatch(word.text):
        raise Unreadable("an assignment or an unusual name in the place of a command", word.start)
