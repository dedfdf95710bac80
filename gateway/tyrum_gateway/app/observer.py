"""The port to whoever counts what happens; nobody does by default.

Invariant: an observer is told after the fact, from values that exist anyway, and never waits or fails.
"""

from typing import Protocol

from tyrum_gateway.domain.commit import Commit


class Observer(Protocol):
    """Is told what happened."""

    def committed(self, commit: Commit, seconds: float) -> None:
        """A transition of a turn is durable; how long the store took."""
        ...

    def called(self, method: str, code: str) -> None:
        """A call of a method of the gateway (`unknown` for others) ended with a gRPC status code."""
        ...

    def answered(self, method: str, seconds: float) -> None:
        """A call without streams was answered."""
        ...


class Unobserved(Observer):
    """Counts nothing."""

    def committed(self, commit: Commit, seconds: float) -> None:
        """See `Observer.committed`."""

    def called(self, method: str, code: str) -> None:
        """See `Observer.called`."""

    def answered(self, method: str, seconds: float) -> None:
        """See `Observer.answered`."""
