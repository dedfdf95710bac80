"""Making text visible: control, format and separator characters as escapes, so that nothing hides.

Two texts never look the same: quoting doubles backslashes whenever it escapes anything.
"""

import re
import shlex

_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols of which nothing is seen, although Unicode counts them as printable."""


def is_plain(text: str) -> bool:
    """Tell whether every character shows itself, the space included."""
    # Exactly the categories Other and Separator, but for the space, are not printable.
    return text.isprintable() and (text.isascii() or _BLANK.search(text) is None)


def quoted(text: str) -> str:
    """Quote text as a shell reads it: bare when it is simple, `$'…'` when something must be escaped."""
    if is_plain(text):
        return shlex.quote(text)
    inner = "".join(
        f"\\{character}"
        if character in {"\\", "'"}
        else character
        if is_plain(character)
        else code(character)
        for character in text
    )
    return f"$'{inner}'"


def code(character: str) -> str:
    """Write a character as an escape."""
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
