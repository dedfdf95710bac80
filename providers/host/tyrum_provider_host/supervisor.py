"""Keeps one provider admitted: launch, admission, health, restart with back-off, quarantine, stop.

Invariants: only an ADMITTED provider is leased; an instance that ended is announced before anything else
happens; being unhealthy never ends a process and never declares its runs dead; whatever the way an instance
ends, its process group and its directory are gone afterwards.
"""

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tyrum_provider_host import proof
from tyrum_provider_host.admission import ISOLATION, admit
from tyrum_provider_host.ending import ask_to_end, end_group
from tyrum_provider_host.errors import ProviderUnavailable
from tyrum_provider_host.ids import new_instance_id
from tyrum_provider_host.isolation import IsolationClient
from tyrum_provider_host.launch import Exit
from tyrum_provider_host.logs import LogRing
from tyrum_provider_host.looking import look
from tyrum_provider_host.racing import Interrupted, unless
from tyrum_provider_host.record import AdmissionRecord, HostFacts, Instance
from tyrum_provider_host.rejection import OPERATOR, Rejected, Stage
from tyrum_provider_host.spec import ProviderSpec, RestartPolicy
from tyrum_provider_host.starting import agree_beforehand, launch, measure_artifact
from tyrum_provider_host.states import admits, compute
from tyrum_provider_host.status import ExitNotice, Lease, Lifecycle, ProviderStatus
from tyrum_provider_host.supervision import CrashLedger, Quarantine, Retry, jittered

_log = logging.getLogger(__name__)
_TAIL_LINES = 3
_EXIT_NOTICE_GRACE = 0.25


class Supervisor:
    """One provider, from start to stop."""

    def __init__(
        self,
        spec: ProviderSpec,
        host: HostFacts,
        policy: RestartPolicy,
        *,
        changed: Callable[[], None],
        on_exit: Callable[[ExitNotice], None],
    ) -> None:
        self.spec = spec
        self._host, self._policy = host, policy
        self._changed, self._announce = changed, on_exit
        self._stopping = asyncio.Event()
        self._restart = asyncio.Event()
        """Set while an operator's restart is due."""
        self._put_off = 0
        """Refusals in a row whose cause passes by itself."""
        self._lifecycle = Lifecycle.STARTING
        self._reason = ""
        self._record = AdmissionRecord(spec, self._ring())
        self._instance: Instance | None = None
        self._instance_id = ""
        self._generation = 0
        self._admissions = 0
        self._ledger = CrashLedger()
        self._lease: Lease | None = None
        self._serving = False
        self._provider_id: str | None = None

    def stop(self) -> None:
        """Ask for the orderly end; `run` returns when it is complete."""
        self._stopping.set()

    def restart(self) -> None:
        """Begin anew, from any lifecycle but the end; what counted towards quarantine is forgotten."""
        self._restart.set()

    def status(self) -> ProviderStatus:
        """Take a snapshot."""
        record = self._record
        started, ended = record.listening_at, record.admitted_at
        return ProviderStatus(
            name=self.spec.name,
            kind=self.spec.kind,
            lifecycle=self._lifecycle,
            states=compute(record.facts),
            stages=record.stages,
            reason=self._reason,
            descriptor=record.descriptor,
            contract=record.contract.label if record.contract else "",
            contract_digest=record.contract.digest if record.contract else "",
            artifact_digest=record.artifact.digest if record.artifact else "",
            config_digest=record.config_digest or "",
            instance_id=self._instance_id if self._instance else "",
            generation=self._generation,
            pid=self._instance.process.pid if self._instance else None,
            posture=record.posture,
            trust_claims=self.spec.trust_claims,
            admissions=self._admissions,
            recent_exits=len(self._ledger.exits),
            admission_seconds=None if started is None or ended is None else ended - started,
            log=record.ring.lines,
        )

    def lease(self) -> Lease:
        """Return the facts of the admitted instance.

        Raises:
            ProviderUnavailable: the provider is not admitted.
        """
        if self._lifecycle is not Lifecycle.ADMITTED or self._lease is None:
            raise self._unavailable()
        return self._lease

    def isolation(self) -> IsolationClient:
        """Return a client for the present instance, admitted or suspended.

        Raises:
            ProviderUnavailable: no instance was admitted, or the provider is of another kind.
        """
        if self.spec.kind != ISOLATION:
            raise ProviderUnavailable(self.spec.name, f"its kind is {self.spec.kind}, not {ISOLATION}")
        if self._instance is None or self._lifecycle not in {Lifecycle.ADMITTED, Lifecycle.SUSPENDED}:
            raise self._unavailable()
        return IsolationClient(
            self._instance.channel, on_violation=partial(self._broke_contract, self._record)
        )

    def _broke_contract(self, record: AdmissionRecord, what: str) -> None:
        """Mark the instance: it told something that cannot be true."""
        _log.error("provider %s answered against its contract: %s", self.spec.name, what, extra=self._ids())
        if record.facts.violation is None:
            record.facts = replace(record.facts, violation=what)
            self._changed()

    def _unavailable(self) -> ProviderUnavailable:
        text = str(self._lifecycle) + (f": {self._reason}" if self._reason else "")
        return ProviderUnavailable(self.spec.name, text)

    async def run(self) -> None:
        """Supervise until `stop`; one that only an operator helps waits for `restart`."""
        try:
            while not self._stopping.is_set():
                delay = await self._attempt()
                await self._pause(delay)
                if self._restart.is_set():
                    self._restart.clear()
                    self._ledger, self._put_off = CrashLedger(), 0
                    _log.info("provider %s is started anew on request", self.spec.name, extra=self._ids())
        finally:
            if self._lifecycle not in {Lifecycle.REJECTED, Lifecycle.QUARANTINED}:
                self._become(Lifecycle.STOPPED, "")

    async def _pause(self, delay: float | None) -> None:
        """Wait for the next start: so many seconds, or without end; a stop or a restart ends it."""
        waiting = asyncio.Event().wait() if delay is None else asyncio.sleep(delay)
        with contextlib.suppress(Interrupted):
            await unless(waiting, self._stopping.wait(), self._restart.wait())

    async def _attempt(self) -> float | None:
        """Stay with one instance, as `_one_instance` does; a defect of ours counts like an end of its own."""
        try:
            return await self._one_instance()
        except Exception as error:  # noqa: BLE001 - one provider's defect must not take the others along
            _log.exception("supervising provider %s failed", self.spec.name, extra=self._ids())
            reason = f"internal error of the host: {type(error).__name__}"
            if self._provider_id is not None:
                return self._again(reason)
            self._become(Lifecycle.REJECTED, reason)
            return None

    def _ring(self) -> LogRing:
        """Make the log of one instance; it hides what other parts of the system keep secret, too."""
        ring = LogRing()
        ring.redact(self._host.concealed())
        return ring

    async def _one_instance(self) -> float | None:
        """Bring up one instance and stay with it; return the seconds until the next, None for no next one."""
        self._generation += 1
        self._record = record = AdmissionRecord(self.spec, self._ring())
        self._become(Lifecycle.STARTING, self._reason)
        try:
            if self._stopping.is_set():
                return None
            await self._bring_up(record)
            ended = await self._watch(record)
            if ended is None:
                return None if self._stopping.is_set() else 0.0
            self._gone(record, ended, expected=False)
            return self._again(f"the provider {ended} unexpectedly")
        except Rejected as rejected:
            return self._refused(record, rejected)
        finally:
            await self._tear_down(record)

    async def _bring_up(self, record: AdmissionRecord) -> None:
        """Launch and admit; returns early at a stop.

        Raises:
            Rejected: admission failed or the process ended.
        """
        contract = agree_beforehand(self.spec, self._host)
        await measure_artifact(self.spec, record)
        self._changed()
        instance_id, token = new_instance_id(), proof.new_token()
        instance = await launch(self.spec, self._host, record, instance_id=instance_id, token=token)
        self._instance, self._instance_id = instance, instance_id
        self._changed()
        admission = admit(
            self.spec, self._host, record, instance,
            contract=contract, instance_id=instance_id, token=token, previous_provider_id=self._provider_id,
        )  # fmt: skip
        try:
            await unless(admission, instance.process.wait(), self._stopping.wait(), self._restart.wait())
        except Interrupted:
            if instance.process.exit is None:
                return
            raise self._ended_early(record, instance.process.exit) from None
        except Rejected as rejected:
            # The connection breaks a moment before the exit status is known; the status says more.
            if rejected.transient:
                try:
                    async with asyncio.timeout(_EXIT_NOTICE_GRACE):
                        ended = await instance.process.wait()
                except TimeoutError:
                    raise rejected from None
                raise self._ended_early(record, ended) from None
            raise
        self._admitted(record)

    def _ended_early(self, record: AdmissionRecord, ended: Exit) -> Rejected:
        return Rejected(
            record.stage,
            f"the provider {ended} before it was admitted",
            action=f"{OPERATOR}: see the provider's output",
            transient=True,
        )

    def _admitted(self, record: AdmissionRecord) -> None:
        self._lease = record.lease(self._instance_id, self._generation)
        self._provider_id = self._lease.provider_id
        self._serving, self._put_off = True, 0
        self._follow_states(record)

    async def _watch(self, record: AdmissionRecord) -> Exit | None:
        """Check health until the instance ends or is to end; return how it ended, None when it was asked to.

        Raises:
            Rejected: another process took over the instance's socket, or it answers nothing any more.
        """
        instance = self._instance
        assert instance is not None
        if not self._asked_to_end:
            with contextlib.suppress(Interrupted):
                await unless(
                    self._check_forever(record, instance),
                    instance.process.wait(),
                    self._stopping.wait(),
                    self._restart.wait(),
                )
        return None if self._asked_to_end else instance.process.exit

    @property
    def _asked_to_end(self) -> bool:
        return self._stopping.is_set() or self._restart.is_set()

    async def _check_forever(self, record: AdmissionRecord, instance: Instance) -> None:
        contract = record.contract
        assert contract is not None
        declared = record.facts.declared or frozenset()
        bounds, now = self._host.bounds, asyncio.get_running_loop().time
        answered = now()
        while True:
            await asyncio.sleep(bounds.health_interval)
            problem, probe, silent = await look(self._host, instance, contract, declared)
            health = record.facts.health.good() if problem is None else record.facts.health.miss(problem)
            if probe is None and health.healthy is not True:
                record.facts = replace(record.facts, probe=None)
            elif probe is not None:
                record.facts = replace(record.facts, probe=probe)
            record.facts = replace(record.facts, health=health)
            self._follow_states(record)
            if problem is None or not silent:
                answered = now()
            elif now() - answered >= bounds.unresponsive:
                raise Rejected(
                    Stage.HEALTH,
                    f"it has answered nothing for {bounds.unresponsive:g} s and is ended",
                    action=f"{OPERATOR}: see its output",
                    transient=True,
                )

    def _follow_states(self, record: AdmissionRecord) -> None:
        states, now = compute(record.facts), asyncio.get_running_loop().time()
        if admits(states):
            self._ledger = self._ledger.became_healthy(now)
            self._become(Lifecycle.ADMITTED, "")
            return
        self._ledger = self._ledger.became_unhealthy(now)
        failing = [f"{state.name}: {state.reason}" for state in states[:5] if state.value != "TRUE"]
        self._become(
            Lifecycle.SUSPENDED,
            f"{'; '.join(failing)}. Nothing new binds until it recovers; {OPERATOR}: see its output",
        )

    def _refused(self, record: AdmissionRecord, rejected: Rejected) -> float | None:
        record.failed(rejected)
        reason = f"refused at {rejected.stage}: {rejected.text}"
        instance = self._instance
        if instance is not None and instance.process.exit is not None and "before it was" not in reason:
            reason += f"; the process {instance.process.exit}"
        tail = [line for line in record.ring.lines if line.startswith("stderr: ")] or list(record.ring.lines)
        if tail and rejected.transient:
            reason += "; last output: " + " | ".join(tail[-_TAIL_LINES:])
        record.facts = replace(record.facts, alive=False, ended=self._ending(instance))
        if rejected.passes:
            return self._later(reason)
        if rejected.transient and self._provider_id is not None:
            return self._again(reason)
        self._become(Lifecycle.REJECTED, reason)
        _log.warning("provider %s: %s", self.spec.name, reason, extra=self._ids())
        return None

    def _ids(self) -> dict[str, object]:
        """Name the present instance, for the log."""
        return {"provider": self.spec.name, "instance": self._instance_id, "generation": self._generation}

    @staticmethod
    def _ending(instance: Instance | None) -> str | None:
        if instance is None:
            return None
        ended = instance.process.exit
        return "was refused and ended by the host" if ended is None else str(ended)

    def _gone(self, record: AdmissionRecord, ended: Exit, *, expected: bool) -> None:
        """Note the end of the present instance, and announce it once if it was admitted."""
        self._lease = None
        record.facts = replace(record.facts, alive=False, ended=record.facts.ended or str(ended))
        self._ledger = self._ledger.became_unhealthy(asyncio.get_running_loop().time())
        if self._serving:
            self._serving = False
            self._announce(ExitNotice(self.spec.name, self._instance_id, self._generation, ended, expected))
        self._changed()

    def _again(self, reason: str) -> float | None:
        self._ledger, decision = self._ledger.ended(asyncio.get_running_loop().time(), self._policy)
        match decision:
            case Quarantine(exits=exits):
                self._become(
                    Lifecycle.QUARANTINED,
                    f"{exits} unexpected ends within {self._policy.crash_window:g} s of healthy time;"
                    f" last: {reason}. {OPERATOR}: see its output, correct the cause, then"
                    f" `tyrum providers restart {self.spec.name}`",
                )
                _log.error("provider %s is quarantined: %s", self.spec.name, reason, extra=self._ids())
                return None
            case Retry(delay=delay):
                return self._back_off(delay, reason)

    def _later(self, reason: str) -> float:
        """Put a start off whose refusal passes by itself: that is no crash, and never ends in quarantine."""
        exponent = min(self._put_off, 32)  # bounded first: refusals without end make no exponent
        self._put_off += 1
        policy = self._policy
        return self._back_off(min(policy.max_delay, policy.initial_delay * policy.factor**exponent), reason)

    def _back_off(self, delay: float, reason: str) -> float:
        wait = jittered(delay, self._policy, random=random.random())  # noqa: S311 - spreads load
        self._become(Lifecycle.BACKING_OFF, f"{reason}; next start in {wait:.2f} s")
        _log.warning("provider %s: %s", self.spec.name, self._reason, extra=self._ids())
        return wait

    async def _tear_down(self, record: AdmissionRecord) -> None:
        instance = self._instance
        if instance is None:
            return
        try:
            if instance.process.exit is None:
                if self._asked_to_end:
                    self._lease = None
                    self._become(Lifecycle.STOPPED, "draining")
                    if record.facts.authenticated and record.facts.health.healthy is not False:
                        await ask_to_end(instance, self._host.bounds, self._ids())
                await end_group(instance, self._host.bounds)
            self._gone(record, await instance.process.wait(), expected=self._asked_to_end)
        finally:
            instance.process.signal_group(signal.SIGKILL)
            self._instance = None
            await instance.channel.close("the instance has ended")
            await asyncio.to_thread(instance.directory.remove)

    def _become(self, lifecycle: Lifecycle, reason: str) -> None:
        if (lifecycle, reason) != (self._lifecycle, self._reason):
            if lifecycle is Lifecycle.ADMITTED and self._lifecycle is not Lifecycle.ADMITTED:
                self._admissions += 1
            self._lifecycle, self._reason = lifecycle, reason
            self._changed()
