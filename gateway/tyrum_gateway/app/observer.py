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

    def step_answered(self, model: str) -> None:
        """A model, by its name in the configuration, answered a step; empty when it is not known."""
        ...

    def tokens_refused(self) -> None:
        """A model was not asked, because the principal has used the tokens of the day."""
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

    def step_answered(self, model: str) -> None:
        """See `Observer.step_answered`."""

    def tokens_refused(self) -> None:
        """See `Observer.tokens_refused`."""

    def called(self, method: str, code: str) -> None:
        """See `Observer.called`."""

    def answered(self, method: str, seconds: float) -> None:
        """See `Observer.answered`."""
