"""One line of what `tyrum doctor` reports."""

from dataclasses import dataclass
from enum import StrEnum


class Result(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `fix` is empty when nothing needs to be done."""

    check: str
    result: Result
    detail: str
    fix: str = ""
