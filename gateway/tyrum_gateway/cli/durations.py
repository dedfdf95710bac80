"""Lengths of time as they are written on the command line: a whole number and a unit, `12h`."""

import re
from datetime import timedelta

from tyrum_gateway.cli.failure import ExitCode, Failure

_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(option: str, text: str) -> timedelta:
    """Read the value of an option.

    Raises:
        Failure: It is no length of time; the text names the option.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise Failure(
            f"`{option}`: `{text}` is not a time",
            hint="a whole number with s, m, h or d, such as 12h",
            code=ExitCode.USAGE,
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
