"""Whether a new run may begin, decided before anything of it exists."""

import hashlib
import hmac
import json
from collections.abc import Collection
from typing import Final, assert_never

from tyrum_local_spawn.failures import Broken, Draining, Failure, Full, Invalid, Reused, Unmet
from tyrum_local_spawn.run import Run, StartRequest
from tyrum_local_spawn.settings import Settings
from tyrum_local_spawn.store import Store
from tyrum_local_spawn.supervision.order import to_head
from tyrum_local_spawn.supervision.record import Refusal

_RECORD_SPACE_BYTES: Final = 4 * 1024 * 1024
"""Free disk without which no run begins."""


class Admission:
    """The conditions of a start, and the digest by which requests are compared."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self.open = True
        """False while draining."""
        self.key = b""
        """The key of digests; empty when it is damaged."""

    def check(self, request: StartRequest, runs: Collection[Run], owner: Run | None) -> None:
        """Check everything that forbids a new run; `owner` is the run that has the requested process id.

        Raises:
            Failure: nothing may begin.
        """
        if not self.open:
            raise Draining("the provider takes no new work; nothing was started")
        if request.required_claims:
            names = ", ".join(sorted(set(request.required_claims)))
            raise Unmet("CLAIM_UNAVAILABLE", f"this provider enforces none of: {names}", {"claims": names})
        if request.durable:
            raise Unmet(
                "CAPABILITY_NOT_DECLARED", "this provider does not offer `durable`", {"capability": "durable"}
            )
        if owner is not None:
            raise Reused("the process id belongs to another operation", {"operation_id": owner.operation_id})
        if sum(run.running for run in runs) >= self._settings.max_concurrent:
            limit = str(self._settings.max_concurrent)
            raise Full("CONCURRENCY_LIMIT", f"{limit} processes are running", {"limit": limit})
        wanted = 2 * self._settings.spool_bytes_per_stream
        if self._spooled(runs) + wanted > self._settings.spool_bytes_total:
            raise Full("QUOTA", "the spools of running and unreleased processes fill spool_bytes_total")
        if not self._store.has_space(_RECORD_SPACE_BYTES):
            raise Full("QUOTA", "the disk of the state directory is full")

    def digest(self, request: StartRequest) -> str:
        """Digest what was requested under the key, so that a digest tells nothing about secrets."""
        head = to_head(request.order)
        head["stdin"] = hashlib.sha256(request.order.stdin).hexdigest()
        head["required_claims"] = sorted(request.required_claims)
        head["durable"] = request.durable
        text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
        return hmac.digest(self.key, text, "sha256").hex()

    def _spooled(self, runs: Collection[Run]) -> int:
        """Return the bytes that spools take, or may come to take while their run lives."""
        reserved = 2 * self._settings.spool_bytes_per_stream
        return sum(reserved if run.end is None else run.end.spooled_bytes for run in runs)


def failure_of(refusal: Refusal, message: str, field: str) -> Failure:
    """Return the failure by which a supervisor's refusal is reported."""
    match refusal:
        case Refusal.FIELD_INVALID:
            return Invalid(message, {"field": field})
        case Refusal.REQUEST_ID_REUSED:
            return Reused(message)
        case Refusal.WORKSPACE_CHANGED | Refusal.PROGRAM_CHANGED | Refusal.PROGRAM_NOT_EXECUTABLE:
            return Unmet(refusal.value, message)
        case Refusal.QUOTA:
            return Full("QUOTA", message)
        case Refusal.INTERNAL:
            return Broken(message)
        case _:
            assert_never(refusal)
