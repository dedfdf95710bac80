"""Prefixes that are the beginning of a URL, and the URLs that begin so.

Invariant: what a prefix admits has its scheme, host and port, by any reader of the URL. Text that two readers
may take differently (user info, braces and ranges that curl expands, backslashes, escaped slashes and dots,
control characters, anything beyond ASCII) begins like nothing.
"""

import re
from dataclasses import dataclass

_LONGEST_SCHEME = 32
_DEFAULT_PORTS = {"ftp": 21, "ftps": 990, "http": 80, "https": 443, "ws": 80, "wss": 443}
_UNFINISHED = re.compile(rf"(?P<scheme>{'|'.join(_DEFAULT_PORTS)}):/?\Z", re.IGNORECASE)
"""A prefix that ends within `://` is the beginning of URLs alone."""

_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]*)(:(?P<port>[0-9]{0,5}))?\Z")
_REST = re.compile(r"(?P<path>[A-Za-z0-9._~!$&'()*+,;=:@/%-]*)(?P<tail>[A-Za-z0-9._~!$&'()*+,;=:@/%?#-]*)\Z")
_ESCAPE = re.compile(r"%(?P<hex>[0-9A-Fa-f]{2})?")
_UNRESERVED = re.compile(r"[A-Za-z0-9_~-]")
_DECEIVING = frozenset("/.\\%{}") | {chr(code) for code in (*range(0x20), 0x7F)}
"""What an escape may not stand for: another reader would decode it into another path, or once more."""


@dataclass(frozen=True, slots=True)
class _Url:
    lead: str
    """Before the scheme, as in `--url=`."""
    scheme: str
    host: str | None
    """None of a prefix that leaves it open."""
    port: int | None
    path: str
    tail: str
    """Query and fragment, with the mark that begins them."""


class _Unclear(ValueError):
    """Readers may differ on it; the text says why."""


def looks_like_url(prefix: str) -> bool:
    """Tell whether a prefix is compared as the beginning of a URL."""
    return _scheme(prefix) is not None or _UNFINISHED.match(prefix) is not None


def flaw(prefix: str) -> str:
    """Say why no URL begins with a prefix that looks like one; empty when some do."""
    try:
        url = _parse(prefix)
    except _Unclear as error:
        return str(error)
    return "" if url.host is None or _normal(url.path) == url.path else "its path has the parts `.` or `..`"


def begins_url(prefix: str, argument: str) -> bool:
    """Tell whether an argument is a URL that begins as a prefix says, after both were parsed and decoded.

    Scheme, host and port are equal, unless the prefix ends before the host; the path, without its `.` and
    `..` parts, begins like that of the prefix. Where the prefix has a query, the path is equal and the query
    begins so.
    """
    if flaw(prefix):
        return False
    try:
        wanted, found = _parse(prefix), _parse(argument)
    except _Unclear:
        return False
    if (wanted.lead, wanted.scheme) != (found.lead, found.scheme):
        return False
    if wanted.host is None:
        return bool(found.host)
    if (wanted.host, wanted.port) != (found.host, found.port):
        return False
    path = _normal(found.path)
    if wanted.tail:
        return path == wanted.path and found.tail.startswith(wanted.tail)
    return path.startswith(wanted.path)


def _scheme(text: str) -> int | None:
    """Find where the scheme of the first URL in a text begins."""
    end = text.find("://")
    start = end
    while start > max(0, end - _LONGEST_SCHEME) and _of_scheme(text[start - 1]):
        start -= 1
    while start < end and not text[start].isalpha():
        start += 1
    return start if start < end else None


def _of_scheme(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "+.-")


def _parse(text: str) -> _Url:
    start = _scheme(text)
    if start is None:
        unfinished = _UNFINISHED.match(text)
        if unfinished is None:
            raise _Unclear("it is no URL")
        return _Url("", unfinished["scheme"].lower(), None, None, "", "")
    scheme, _, after = text[start:].partition("://")
    scheme, lead = scheme.lower(), text[:start]
    if not after:
        return _Url(lead, scheme, None, None, "", "")
    end = next((index for index, character in enumerate(after) if character in "/?#"), len(after))
    if "@" in after[:end]:
        raise _Unclear("it has user info (`@`), behind which another host may stand")
    authority, rest = _AUTHORITY.match(after[:end]), _REST.match(after[end:])
    if authority is None or rest is None:
        raise _Unclear(
            "it has characters that are none of a URL's, or that programs expand: braces, brackets, "
            "backslashes, blanks, control characters or others beyond ASCII"
        )
    port = int(authority["port"]) if authority["port"] else _DEFAULT_PORTS.get(scheme)
    host = authority["host"].lower().removesuffix(".")
    return _Url(lead, scheme, host, port, _decoded(rest["path"]) or "/", _decoded(rest["tail"]))


def _decoded(text: str) -> str:
    """Decode what needs no escape, and write the others in one way."""

    def one(escape: re.Match[str]) -> str:
        if escape["hex"] is None:
            raise _Unclear("it has `%` without two hexadecimal digits")
        character = chr(int(escape["hex"], 16))
        if character in _DECEIVING:
            raise _Unclear("it has an escape that stands for a slash, a dot, a brace or a control character")
        return character if _UNRESERVED.fullmatch(character) else escape[0].upper()

    return _ESCAPE.sub(one, text)


def _normal(path: str) -> str:
    """Leave out the parts `.` and `..` of a path, as RFC 3986 has it."""
    parts: list[str] = []
    for part in path.split("/")[1:]:
        if part == ".." and parts:
            parts.pop()
        if part not in {".", ".."}:
            parts.append(part)
    ending = "/" if path.rpartition("/")[2] in {".", ".."} and parts else ""
    return "/" + "/".join(parts) + ending
