"""The offline model's directives: `/run TEXT`, read as a command or, when it is more than that, for a shell.

Invariant: text becomes an argument vector only when a POSIX shell would read exactly the same words, so that
nobody is surprised by a `*` or `$HOME` that was meant to be expanded.
"""

import re
import shlex
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"/run(?:\s+(?P<text>.*))?", re.DOTALL)
_SHELL_SYNTAX = frozenset("|&;<>()$`*?[]{}~#!\n")
_EXPANDED_IN_QUOTES = frozenset("$`")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


@dataclass(frozen=True, slots=True)
class Command:
    """Words that need no shell."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShellText:
    """Text that only a shell reads as it was meant."""

    text: str


def parse_run(message: str) -> Command | ShellText | None:
    """Read `/run TEXT`.

    Returns:
        None when the message is no such directive or names nothing to run.
    """
    match = _DIRECTIVE.fullmatch(message.strip())
    text = (match["text"] or "").strip() if match else ""
    if not text:
        return None
    if holds_shell_syntax(text):
        return ShellText(text)
    return Command(tuple(shlex.split(text)))


def holds_shell_syntax(text: str) -> bool:
    """Tell whether a shell would do more with the text than split it into words.

    True for metacharacters outside quotes, expansions in double quotes, a leading assignment, and quoting
    that does not close.
    """
    if _ASSIGNMENT.match(text):
        return True
    quote, escaped = "", False
    for character in text:
        if escaped:
            # A shell joins lines at an escaped newline, and drops the backslash before `$` in double quotes.
            if character == "\n" or (quote and character in _EXPANDED_IN_QUOTES):
                return True
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in _EXPANDED_IN_QUOTES:
                return True
        elif character in {"'", '"'}:
            quote = character
        elif character in _SHELL_SYNTAX:
            return True
    return bool(quote) or escaped
