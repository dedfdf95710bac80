"""The life of runs: the only place where one begins, and where runs are ended with the provider.

Invariant: an operation begins at most once, whatever arrives twice or late; a damaged record stops new
starts.
"""

import asyncio
import contextlib
import functools
import hmac
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, assert_never

from tyrum_local_spawn.admission import Admission, failure_of
from tyrum_local_spawn.crew import Crew
from tyrum_local_spawn.failures import Broken, Damaged, Failure, Reused
from tyrum_local_spawn.ids import OperationId, ProcessId
from tyrum_local_spawn.link import NotStarted, Started, SupervisorEnded, SupervisorGone, SupervisorLink
from tyrum_local_spawn.register import Register
from tyrum_local_spawn.run import Run, RunView, StartRequest
from tyrum_local_spawn.settings import Settings
from tyrum_local_spawn.store import Store
from tyrum_local_spawn.supervision.order import Order
from tyrum_local_spawn.supervision.record import Cause, Refusal

_START_SECONDS: Final = 9.0
_SUPERVISORS: Final = 3
"""How many supervisors get an order, one after the other, when each ends before it records anything."""
_FULL_SECONDS: Final = 0.005
"""How long a start waits before it looks again whether the spawner takes more orders."""
_SOFT_END_SECONDS: Final = 1.0
HARD_END_SECONDS: Final = 0.6
"""How long a shutdown waits beyond its grace for runs that are being killed."""
_SWEEP_SECONDS: Final = 3600.0
_OVERDUE_SECONDS: Final = 45.0
"""How long after its limit, or its cancellation, a run has ended whatever grace was given: its supervisor is
ended then, because something holds it up."""

_log = logging.getLogger(__name__)


class Runs:
    """Begins and ends runs; what is known of them stands in the register. One event loop."""

    def __init__(self, store: Store, crew: Crew, settings: Settings) -> None:
        self.register = Register(store, settings.retention)
        self._crew = crew
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self._admission = Admission(settings, store)

    async def load(self) -> None:
        """Take over what a predecessor recorded; called once, before anything starts."""
        self._admission.key = await self.register.load()

    def drain(self) -> None:
        """Start nothing new from now on."""
        self._admission.open = False

    def begin(self, request: StartRequest) -> Run:
        """Give the order for a run, or return the one that an equal request began; `begun` tells the rest.

        Raises:
            Failure: nothing was started by this call.
        """
        register = self.register
        operation_id = OperationId(request.order.operation_id)
        register.check(operation_id)
        if not self._admission.key:
            raise Damaged("the key of the records is damaged; nothing can be compared with them")
        digest = self._admission.digest(request)
        run = register.known(operation_id)
        if run is not None:
            if not hmac.compare_digest(run.digest, digest):
                raise Reused("the operation id stands for another request")
            return run
        if register.damage:
            raise Damaged("records are damaged; nothing new is started until an operator has looked")
        owner = register.owner(ProcessId(request.order.process_id))
        self._admission.check(request, register.runs, owner)
        order = replace(
            request.order,
            spec_digest=digest,
            spool_bytes=self._settings.spool_bytes_per_stream,
            run_as=self._settings.run_as,
        )
        run = Run(operation_id, ProcessId(order.process_id), digest)
        run.link = self._summon(run, order)
        self.register.adopt(run)
        self._spawn(self._live(run, order, run.link))  # it goes on when the caller leaves
        return run

    async def begun(self, run: Run, linger: float) -> RunView:
        """Return a run that was begun, once it has ended or after `linger` seconds.

        Raises:
            Failure: nothing was started by this call; of an earlier equal one, the same failure is repeated.
        """
        if linger > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(linger):
                    await run.settled.wait()
        await run.begun.wait()
        if run.failure is not None:
            raise run.failure
        if run.end is not None and run.end.cause is Cause.START_FAILED:
            raise failure_of(run.end.refusal or Refusal.INTERNAL, run.end.detail, "spec.argv")
        self.register.check(run.operation_id)
        return await self.register.with_evidence(run)

    async def _live(self, run: Run, order: Order, link: SupervisorLink | None) -> None:
        """Take a run from its order to its end."""
        try:
            try:
                await self._see_begun(run, order, link)
            finally:
                run.begun.set()
            await self._see_over(run, order)
        except Failure as failure:
            run.failure = failure
        except Exception:
            # Nobody watches it any more: the closed link ends it, and the disk answers who asks.
            run.failure = Broken("the run could not be watched")
            if run.link is not None:
                run.link.close()
            self.register.forget(run)
            raise
        finally:
            run.let_go()

    async def _see_over(self, run: Run, order: Order) -> None:
        if run.link is not None:
            overdue = _hang_up_later(run.link, order.wall_time + _OVERDUE_SECONDS)
            try:
                await run.link.over()
            finally:
                overdue.cancel()
        if run.running:
            run.kill_leader()
            await self.register.settle(run)

    async def _see_begun(self, run: Run, order: Order, link: SupervisorLink | None) -> None:
        outcome = await self._outcome(run, order, link)
        match outcome:
            case Started(started_at_ns=moment, leader=leader):
                run.started_at_ns = moment
                if leader is not None and run.running:
                    run.hold(leader)
            case NotStarted(record=record):
                if record is None:
                    self.register.forget(run)
                else:
                    self.register.conclude(run, record)
                raise failure_of(outcome.refusal, outcome.message, outcome.field)
            case None:
                await self.register.settle(run)
                if run.started_at_ns is None:
                    raise Broken("the supervisor ended before it reported the start")
            case _:
                assert_never(outcome)

    async def _outcome(
        self, run: Run, order: Order, link: SupervisorLink | None
    ) -> Started | NotStarted | None:
        """Return what became of an order; None when its supervisor ended, or was hung up on, silently."""
        try:
            async with asyncio.timeout(_START_SECONDS):
                for left in reversed(range(_SUPERVISORS)):
                    while link is None:
                        await asyncio.sleep(_FULL_SECONDS)
                        link = run.link = self._summon(run, order)
                    try:
                        return await link.outcome()
                    except SupervisorEnded:
                        # The record comes before the execution, and who could still make it has ended: while
                        # there is none, the order has had no effect and another supervisor may have it.
                        if not left or await self.register.recorded(run):
                            return None
                        _log.warning("a supervisor ended with an order; another gets it")
                        link = None
        except Broken:
            self.register.forget(run)
            raise
        except (TimeoutError, SupervisorGone):
            # A supervisor that still gets this order sees the closed link before it executes anything.
            if link is not None:
                link.close()
        return None

    def _summon(self, run: Run, order: Order) -> SupervisorLink | None:
        return self._crew.summon(order, functools.partial(self.register.conclude, run))

    async def cancel(self, process_id: ProcessId, grace: float | None) -> RunView:
        """Ask for the end of a run and return its state at that moment; without `grace` the start's counts.

        Raises:
            Failure: as for `view`.
        """
        run = await self.register.find(process_id)
        if run.link is not None:
            run.link.cancel(Cause.CANCELLED, grace)
            _hang_up_later(run.link, _OVERDUE_SECONDS)
        return run.view()

    def keep_watch(self) -> None:
        """Sweep from time to time, and watch over the spawner, for the life of the provider."""
        self._spawn(self._keep_sweeping())
        self._spawn(self._crew.keep())

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await self.register.sweep()

    async def shutdown(self, grace: float) -> None:
        """Let runs end by themselves for `grace` seconds, then end them; returns shortly after that."""
        self.drain()
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        await self._all_settled(max(0.0, grace - _SOFT_END_SECONDS))
        for run in self.register.runs:
            if run.link is not None:
                run.link.cancel(Cause.PROVIDER_GONE, max(0.0, until - loop.time()))
        await self._all_settled(max(0.0, until - loop.time()) + HARD_END_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _all_settled(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for run in self.register.runs:
                    await run.settled.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run work that outlives the call; `shutdown` ends it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, Failure):
            _log.error("work on a run failed", exc_info=error)


def _hang_up_later(link: SupervisorLink, seconds: float) -> asyncio.TimerHandle:
    """Stop waiting then for a supervisor that does not end its run: what it leaves is settled without it."""

    def hang_up() -> None:
        if link.open:
            _log.error("a supervisor does not end its run, and is ended")
            link.close()

    return asyncio.get_running_loop().call_later(seconds, hang_up)
