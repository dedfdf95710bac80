"""The end of one provider instance: asked for, then demanded.

Invariant: every wait is bounded, and after the last bound the process group has had its SIGKILL.
"""

import asyncio
import contextlib
import logging
import signal

from tyrum_provider_host.errors import CallError, ProviderUnavailable
from tyrum_provider_host.racing import Interrupted, unless
from tyrum_provider_host.record import Instance
from tyrum_provider_host.spec import TimeBounds

_log = logging.getLogger(__name__)
KILL_WAIT = 5.0
"""Seconds that a process may take to end after SIGKILL."""


async def ask_to_end(instance: Instance, bounds: TimeBounds, ids: dict[str, object]) -> None:
    """Drain, then Shutdown; give up at the bounds or when the process ends. `ids` name it in the log."""

    async def politely() -> None:
        try:
            await instance.control.drain()
            await instance.control.shutdown()
        except (CallError, ProviderUnavailable) as error:
            _log.info("provider %s did not stop on request: %s", ids["provider"], error, extra=ids)
            return
        async with asyncio.timeout(bounds.shutdown_grace + bounds.shutdown_ack):
            await instance.process.wait()

    try:
        await unless(politely(), instance.process.wait())
    except (Interrupted, TimeoutError):
        return


async def end_group(instance: Instance, bounds: TimeBounds) -> None:
    """Send SIGTERM to the process group, then SIGKILL.

    Raises:
        TimeoutError: the process outlived both, as one does that the system itself holds up.
    """
    for number, patience in ((signal.SIGTERM, bounds.term_grace), (signal.SIGKILL, KILL_WAIT)):
        if instance.process.exit is not None:
            return
        instance.process.signal_group(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await instance.process.wait()
    if instance.process.exit is None:
        raise TimeoutError(f"process {instance.process.pid} outlives SIGKILL")
