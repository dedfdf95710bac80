"""Characters in halves: JSON may escape one as two, and servers part a stream between them.

Invariant: two halves that follow each other are their character, and never two of anything else.
"""

import re

_HALF = re.compile("[\ud800-\udfff]")
_FIRST_AT_END = re.compile("[\ud800-\udbff]\\Z")


def has_half(text: str) -> bool:
    """Tell whether a half is in a text."""
    return not text.isascii() and _HALF.search(text) is not None


def joined(text: str) -> str:
    """Make characters of halves that follow each other; any other half stays what it is."""
    if not has_half(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class Halves:
    """Text in pieces: a first half at the end of one waits for the next."""

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, piece: str) -> str:
        """Take a piece; return what is whole of it."""
        if not piece:
            return ""
        text = joined(self._waiting + piece)
        self._waiting = text[-1:] if _FIRST_AT_END.search(text) else ""
        return text.removesuffix(self._waiting)

    def rest(self) -> str:
        """Return a half that found no other, at the end; mostly nothing."""
        return self._waiting
