"""Semantic versions and the operator's range of admitted implementation versions.

Invariant: a pre-release of a version never slips into a range that ends below that version.
"""

import re
from dataclasses import dataclass
from typing import Self

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?", re.ASCII)

_Precedence = tuple[tuple[int, int, int], tuple[int, tuple[tuple[int, int, str], ...]]]


@dataclass(frozen=True, slots=True)
class SemanticVersion:
    """A version by semver.org 2.0; build metadata does not take part in comparisons."""

    core: tuple[int, int, int]
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `text`.

        Raises:
            ValueError: it is not a semantic version.
        """
        match = _SEMVER.fullmatch(text)
        if match is None:
            raise ValueError(f"`{text[:64]}` is not a semantic version such as 1.2.3")
        major, minor, patch, prerelease = match.groups()
        return cls((int(major), int(minor), int(patch)), tuple(prerelease.split(".")) if prerelease else ())

    def __str__(self) -> str:
        release = ".".join(map(str, self.core))
        return f"{release}-{'.'.join(self.prerelease)}" if self.prerelease else release

    @property
    def precedence(self) -> _Precedence:
        """Key that orders versions as semver.org does: a pre-release comes before its release."""
        identifiers = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease
        )
        return self.core, (0 if identifiers else 1, identifiers)


@dataclass(frozen=True, slots=True)
class ImplementationRange:
    """Comma-separated comparisons that must all hold, such as `>=0.1,<0.2`."""

    text: str
    clauses: tuple[tuple[str, tuple[int, int, int]], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `text`.

        Raises:
            ValueError: a comparison is malformed; the message quotes it.
        """
        clauses = []
        for part in text.split(","):
            match = _CLAUSE.fullmatch(part.strip())
            if match is None:
                raise ValueError(f"`{part.strip()[:64]}` is not a comparison such as >=0.1")
            operator, major, minor, patch = match.groups()
            clauses.append((operator, (int(major), int(minor or 0), int(patch or 0))))
        return cls(text, tuple(clauses))

    def admits(self, version: SemanticVersion) -> bool:
        """Tell whether every comparison holds for `version`."""
        return all(_holds(version, operator, bound) for operator, bound in self.clauses)


def _holds(version: SemanticVersion, operator: str, bound: tuple[int, int, int]) -> bool:
    key, limit = version.precedence, SemanticVersion(bound).precedence
    match operator:
        case ">=":
            return key >= limit
        case ">":
            return key > limit
        case "<=":
            return key <= limit
        case "<":
            return version.core < bound
        case "==":
            return key == limit
        case _:
            return key != limit
