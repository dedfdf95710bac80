"""Kinds of audit rows as they are typed: one that no row has is refused, not answered with an empty list."""

from difflib import get_close_matches

from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.terminal import shortened
from tyrum_gateway.domain.audit import KINDS

_WIDTH = 40


def require_known(prefix: str) -> None:
    """Accept the beginning of a known kind.

    Raises:
        Failure: No kind begins so; the nearest ones are named.
    """
    if any(kind.startswith(prefix) for kind in KINDS):
        return
    near = _near(prefix.lower())
    raise Failure(
        f"`--kind`: no kind begins with `{shortened(prefix, _WIDTH)}`",
        hint=f"near it: {', '.join(near)}" if near else f"kinds begin with {', '.join(_groups())}",
        code=ExitCode.USAGE,
    )


def _near(prefix: str) -> list[str]:
    """List kinds of the group that was meant, else those that look alike or hold the text."""
    meant = get_close_matches(prefix.partition(".")[0] + ".", _groups(), n=1)
    same = [kind for kind in KINDS if meant and kind.startswith(meant[0])]
    return sorted(
        same or [kind for kind in KINDS if prefix in kind] or get_close_matches(prefix, sorted(KINDS))
    )


def _groups() -> list[str]:
    return sorted({kind.partition(".")[0] + "." for kind in KINDS})
