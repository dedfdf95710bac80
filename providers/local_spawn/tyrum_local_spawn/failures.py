"""How this provider's own layers fail; the service turns each class into one registered reason.

Failure
├── Invalid            a request field names something unusable
├── Reused             an operation or process id stands for something else
├── Unknown            no such process
├── StillRunning       the process has not ended
├── WaitExpired        it did not end in time
├── Unmet              something outside the request must change first (workspace, program, claim, capability)
├── Full               capacity or space is used up
├── Draining           no new work
├── Damaged            the records do not check
└── Broken             the provider's own machinery failed; whether the command ran must be resolved
"""

from collections.abc import Mapping


class Failure(Exception):
    """Base of the tree; `message` is public.

    Args:
        message: text for the caller, without values of environment or stdin.
        metadata: every dynamic part of the message, by name.
    """

    def __init__(self, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})


class Invalid(Failure):
    """The caller fixes the field that `metadata["field"]` names."""


class Reused(Failure):
    """The id was used for something else before."""


class Unknown(Failure):
    """There is no such process, or not any more."""


class StillRunning(Failure):
    """The call needs an ended process."""


class WaitExpired(Failure):
    """The process still runs after the wished time."""


class Unmet(Failure):
    """A precondition does not hold; `reason` is its registered name."""

    def __init__(self, reason: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message, metadata)
        self.reason = reason


class Full(Failure):
    """Capacity is used up; `reason` tells CONCURRENCY_LIMIT and QUOTA apart."""

    def __init__(self, reason: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message, metadata)
        self.reason = reason


class Draining(Failure):
    """Nothing was started, and nothing will be."""


class Damaged(Failure):
    """Records are damaged; an operator must look before anything new starts."""


class Broken(Failure):
    """The spawner or a supervisor failed."""
