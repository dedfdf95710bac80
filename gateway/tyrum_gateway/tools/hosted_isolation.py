"""One isolation profile over the provider host: from what a call did to what the kernel may conclude.

Invariants: an operation is asked about at the provider its binding names, never elsewhere; a start is
repeated only after the provider said that it had no effect, and under the same ids; an unclear start is
resolved from the provider's journal, and without an answer from there the outcome is unknown.
"""

import asyncio
import pwd
from collections.abc import Mapping, Sequence

import structlog

from tyrum_gateway.domain.binding import Candidate
from tyrum_gateway.domain.errors import KernelBug, ProviderUnavailable
from tyrum_gateway.domain.ports import RecordedRun
from tyrum_gateway.domain.process import (
    ProcessRun,
    Ran,
    Refused,
    Unknown,
)
from tyrum_gateway.domain.tool import Execution
from tyrum_gateway.tools.hosted_convert import context_of, process_id_of, result_of, spec_of
from tyrum_gateway.tools.isolation import NEVER_STARTED, UNAVAILABLE, Boundary, RunAnswer, Running
from tyrum_provider_host import claims
from tyrum_provider_host.errors import (
    ANSWERED,
    CallError,
    Capacity,
    Effect,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    Transient,
    WaitExpired,
)
from tyrum_provider_host.errors import ProviderUnavailable as HostUnavailable
from tyrum_provider_host.host import ProviderHost
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.isolation_types import (
    NeverStarted,
    Posture,
    Process,
    ProcessSpec,
    ProcessState,
)
from tyrum_provider_host.status import Lifecycle

KIND = "isolation"
_PLACE_PAUSE = 1.0
"""Seconds between two attempts of the start that is next to get a place, at most."""
_LINGER = 2.0
"""Seconds for which a start waits for the end, so that a short command is one call of the provider."""
_RETRY_PAUSE = 0.5
_RELEASE_PATIENCE = 35.0
_RESOLVE_PATIENCE = 20.0
"""How long a provider that is away may take to come back before what it ran is settled without it."""
_RESOLVE_PAUSE = 0.1
_CANCEL_PATIENCE = 60.0
"""Longer than the host takes to find a provider lost, end it and bring up the next."""
_HOPELESS = frozenset({Lifecycle.REJECTED, Lifecycle.QUARANTINED, Lifecycle.STOPPED})
_ASKABLE = frozenset({Lifecycle.ADMITTED, Lifecycle.SUSPENDED})
"""A suspended provider takes nothing new, and is asked about what it ran."""
_PAGE = 500
_LONG = 3600.0

_log = structlog.get_logger("tyrum.tools")


class HostedIsolation:
    """An isolation profile of the operator.

    Args:
        host: Supervises the providers.
        provider: The one provider that the operator selected for the profile.
        profile: Name of the profile.
        required_claims: Claims without whose proof nothing is bound.
    """

    def __init__(
        self, host: ProviderHost, *, provider: str, profile: str, required_claims: tuple[str, ...] = ()
    ) -> None:
        self._host = host
        self._provider = provider
        self._profile = profile
        self._required = required_claims
        self._places = asyncio.Lock()
        # Both hold for one revision of the host: every change of a provider makes another.
        self._cached: tuple[int, Candidate, Boundary] | None = None
        self._connected: tuple[int, IsolationClient, str] | None = None

    def candidate(self) -> Candidate:
        """Return what would be bound now.

        Raises:
            ProviderUnavailable: The provider is not admitted, or a required claim is not PROVED.
        """
        return self._present()[0]

    def boundary(self) -> Boundary:
        """Return the posture in force.

        Raises:
            ProviderUnavailable: The provider is not admitted, or a required claim is not PROVED.
        """
        return self._present()[1]

    async def _reached(self, timeout: float) -> bool:
        """Wait until the provider can be asked, at most `timeout` seconds; not for one that never can be."""

        def settled(host: ProviderHost) -> bool:
            return host.status(self._provider).lifecycle in _ASKABLE | _HOPELESS

        await self._host.wait_until(settled, timeout)
        return self._host.status(self._provider).lifecycle in _ASKABLE

    async def start(self, execution: Execution, run: ProcessRun, secrets: Mapping[str, str]) -> RunAnswer:
        """Start the command, and return its end if that comes soon.

        While the provider is at its limit, starts wait for a place in the order in which they came.
        """
        spec = spec_of(run, secrets)
        if not self._places.locked():  # no start waits for a place
            answer = await self._start(execution, spec, _LINGER)
            if not isinstance(answer, Capacity):
                return answer
        async with self._places:  # a lock is given in the order in which it was asked for
            while isinstance(answer := await self._start(execution, spec, 0.0), Capacity):  # noqa: ASYNC110
                await asyncio.sleep(max(min(answer.retry_after, _PLACE_PAUSE), 0.01))
        return answer

    async def _start(self, execution: Execution, spec: ProcessSpec, linger: float) -> RunAnswer | Capacity:
        """Start once; a limit that is reached is returned, since nothing was started."""
        try:
            client = self._client(execution)
            process = await client.start(
                context_of(execution),
                operation_id=execution.operation_id,
                process_id=process_id_of(execution),
                spec=spec,
                linger=linger,
            )
            return _answer(process, execution)
        except HostUnavailable as error:
            return Refused(UNAVAILABLE, str(error))
        except Capacity as error:
            return error if error.reason == "CONCURRENCY_LIMIT" else _refused(error)
        except CallError as error:
            if error.effect is Effect.NONE and not isinstance(error, WaitExpired):
                return _refused(error)
            _log.warning("start_unclear", operation=execution.operation_id, error=str(error))
            return await self.resolve(execution, begun=error.code == ANSWERED)

    async def wait(self, execution: Execution, timeout: float) -> RunAnswer:
        """Wait for the end, at most `timeout` seconds."""
        try:
            client = self._client(execution)
            process = await client.wait(context_of(execution), process_id_of(execution), timeout=timeout)
        except WaitExpired:
            return Running()
        except (HostUnavailable, CallError) as error:
            _log.warning("wait_unclear", operation=execution.operation_id, error=str(error))
            answer = await self.resolve(execution, begun=True)
            if isinstance(answer, Running):
                # The caller waits again at once: do not let a provider that fails every wait spin it.
                await asyncio.sleep(min(_RETRY_PAUSE, timeout))
            return answer
        return _answer(process, execution)

    async def resolve(self, execution: Execution, *, begun: bool = False) -> RunAnswer:
        """Ask the journal; an operation that has not begun never will.

        A provider that is away, or goes away while it is asked, is waited for at most 20 s.

        Args:
            execution: The operation.
            begun: Whether the provider reported the run before: then it cannot have never started.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _RESOLVE_PATIENCE
        while await self._reached(max(0.0, until - loop.time())):
            answer = await self._journal(execution)
            if not (isinstance(answer, Unknown) and answer.passing) or loop.time() >= until:
                return _undenied(answer) if begun else answer
            await asyncio.sleep(_RESOLVE_PAUSE)
        status = self._host.status(self._provider)
        return Unknown(f"provider `{self._provider}` did not come back: {status.lifecycle} {status.reason}")

    async def _journal(self, execution: Execution) -> RunAnswer:
        try:
            client = self._client(execution)
            outcome = await client.resolve_operation(context_of(execution), execution.operation_id)
        except HostUnavailable as error:
            return Unknown(str(error), passing=not isinstance(error, _BoundElsewhere))
        except CallError as error:
            return Unknown(str(error), passing=isinstance(error, OutcomeUnknown | Transient))
        if isinstance(outcome, NeverStarted):
            return _denied(outcome, execution)
        return _answer(outcome, execution)

    async def cancel(self, execution: Execution) -> None:
        """End the command tree, best effort; a provider that hangs or comes back is asked again for 60 s.

        A start that is still on its way is met too: resolving the operation seals it.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _CANCEL_PATIENCE
        while True:
            try:
                await self._cancel(execution)
                return
            except (HostUnavailable, CallError) as error:
                again = isinstance(error, HostUnavailable | OutcomeUnknown | Transient)
                _log.warning("cancel_failed", operation=execution.operation_id, error=str(error), again=again)
                if not again:
                    return
            await asyncio.sleep(_RETRY_PAUSE)
            if not await self._reached(max(0.0, until - loop.time())) or loop.time() >= until:
                return

    async def _cancel(self, execution: Execution) -> None:
        context, process_id = context_of(execution), process_id_of(execution)
        client = self._client(execution)
        try:
            await client.cancel(context, process_id)
        except NotFound:
            outcome = await client.resolve_operation(context, execution.operation_id)
            if isinstance(outcome, Process) and outcome.state is ProcessState.RUNNING:
                await client.cancel(context, process_id)

    async def release(self, execution: Execution) -> None:
        """Let the provider forget the run, best effort; one that is being ended is awaited first."""
        context, process_id = context_of(execution), process_id_of(execution)
        try:
            client = self._client(execution)
            try:
                await client.release(context, process_id)
            except PreconditionFailed:
                await client.wait(context, process_id, timeout=_RELEASE_PATIENCE)
                await client.release(context, process_id)
        except (HostUnavailable, CallError) as error:
            # The provider frees the record by itself when its retention is over.
            _log.info("release_failed", operation=execution.operation_id, error=str(error))

    async def admitted_again(self, seen: int) -> int:
        """Return how often the provider has become admitted, as soon as that is more than `seen` times."""

        def again(host: ProviderHost) -> bool:
            status = host.status(self._provider)
            return status.lifecycle is Lifecycle.ADMITTED and status.admissions > seen

        while not await self._host.wait_until(again, _LONG):
            pass
        return self._host.status(self._provider).admissions

    async def recorded(self) -> Sequence[RecordedRun]:
        """List the runs that the provider has a record of.

        Raises:
            ProviderUnavailable: It cannot be asked, or breaks its contract.
        """
        found: list[RecordedRun] = []
        token = ""
        try:
            while True:
                client = self._host.isolation(self._provider)
                page = await client.list(page_size=_PAGE, page_token=token)
                found += [
                    RecordedRun(process.operation_id, process.state is ProcessState.RUNNING)
                    for process in page.processes
                ]
                if not page.next_page_token or page.next_page_token <= token:
                    return found
                token = page.next_page_token
        except (HostUnavailable, CallError) as error:
            raise ProviderUnavailable(str(error), provider=self._provider) from None

    def serves(self, execution: Execution) -> bool:
        """Tell whether the operation is bound to this profile."""
        return execution.candidate is not None and execution.candidate.profile == self._profile

    def _present(self) -> tuple[Candidate, Boundary]:
        revision = self._host.revision
        if self._cached is None or self._cached[0] != revision:
            self._cached = (revision, *self._resolve())
        return self._cached[1], self._cached[2]

    def _resolve(self) -> tuple[Candidate, Boundary]:
        try:
            lease = self._host.lease(self._provider)
        except HostUnavailable as error:
            raise ProviderUnavailable(str(error), provider=self._provider) from None
        posture = self._host.status(self._provider).posture
        if lease.kind != KIND or posture is None:
            raise ProviderUnavailable(
                f"provider `{self._provider}` states no boundary", provider=self._provider, kind=lease.kind
            )
        self._require_claims(posture)
        candidate = Candidate(
            kind=lease.kind,
            provider=lease.name,
            provider_id=lease.provider_id,
            profile=self._profile,
            contract_major=lease.contract_major,
            contract_minor=lease.contract_minor,
            contract_digest=lease.contract_digest,
            implementation_version=lease.implementation_version,
            artifact_digest=lease.artifact_digest,
            config_digest=lease.config_digest,
            instance_id=lease.instance_id,
            claims=tuple(sorted(f"{claim.name}={claims.stated(claim)}" for claim in posture.claims)),
            journal_id=lease.journal_id,
        )
        boundary = Boundary(
            run_uid=posture.run_uid,
            user=_user_name(posture.run_uid),
            shares_gateway_user=posture.shares_gateway_user,
        )
        return candidate, boundary

    def _require_claims(self, posture: Posture) -> None:
        trusted = self._host.status(self._provider).trust_claims
        if unproved := claims.unproved(self._required, posture, trusted=trusted):
            raise ProviderUnavailable(
                f"profile `{self._profile}` requires claims that provider `{self._provider}` has not proved: "
                + ", ".join(f"{name} ({status})" for name, status in unproved.items()),
                provider=self._provider,
            )

    def _client(self, execution: Execution) -> IsolationClient:
        """Return a client of the provider that the operation is bound to.

        Raises:
            HostUnavailable: It has no live instance, or another provider has taken its place.
        """
        if execution.candidate is None:
            raise KernelBug("an operation of a provider has no binding", operation=execution.operation_id)
        revision = self._host.revision
        if self._connected is None or self._connected[0] != revision:
            client = self._host.isolation(self._provider)
            descriptor = self._host.status(self._provider).descriptor
            self._connected = revision, client, descriptor.provider_id if descriptor else ""
        _, client, provider_id = self._connected
        bound = execution.candidate
        if (provider_id, self._profile) != (bound.provider_id, bound.profile):
            raise _BoundElsewhere(
                self._provider, f"the operation is bound to `{bound.provider_id}`, profile `{bound.profile}`"
            )
        return client


class _BoundElsewhere(HostUnavailable):
    """Another provider has taken the place of the one that the operation is bound to."""


def _answer(process: Process, execution: Execution) -> RunAnswer:
    """Read what the provider says of a run, provided that it is the one it was asked about."""
    if (process.operation_id, process.process_id) != (execution.operation_id, execution.process_id):
        return Unknown("the provider described another process")
    return Running() if process.result is None else Ran(result_of(process.result))


def _denied(denial: NeverStarted, execution: Execution) -> RunAnswer:
    """Judge a journal's denial of an operation: it counts if the operation was bound under that journal."""
    bound = execution.candidate.journal_id if execution.candidate else ""
    if bound and denial.journal_id == bound:
        return Refused(NEVER_STARTED, "the command did not run")
    _log.error(
        "journal_lost", operation=execution.operation_id, bound=bound or "unknown", found=denial.journal_id
    )
    return Unknown(
        "the provider's journal is not the one under which the command was started: it was removed, replaced"
        " or restored, and what it does not know may have run"
    )


def _undenied(answer: RunAnswer) -> RunAnswer:
    """Judge an answer about a run that the provider reported before: it cannot have never started."""
    if isinstance(answer, Refused) and answer.reason == NEVER_STARTED:
        return Unknown("the provider reported the run first and denied it later")
    return answer


def _refused(error: CallError) -> Refused:
    said = f": {error.detail}" if error.detail else ""
    return Refused(error.reason or error.code, f"the provider refused ({error.reason or error.code}){said}")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
