"""What may reach a terminal.

Invariant: text of models, commands and providers is shown, never obeyed: no control character but line feed
and tab, no escape sequence and no bidirectional override gets through raw.
"""

import re

# C0 except tab and line feed, DEL, C1; marks and overrides that reorder or hide what a human approves.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# On a line that names what is called, also letters and marks of which nothing is seen.
_UNSAFE_IN_LINE = re.compile(
    f"{_UNSAFE.pattern}|[\t\n\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)


def visible(text: str) -> str:
    r"""Replace what a terminal would obey by its escape, such as `\x1b`."""
    return _UNSAFE.sub(_escape, text)


def visible_line(text: str) -> str:
    """Do the same for text that must stay on one line."""
    return _UNSAFE_IN_LINE.sub(_escape, text)


def shortened(text: str, limit: int) -> str:
    """Make text a visible line of at most `limit` characters."""
    line = visible_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
