"""One look at an admitted instance: whether it is well, and whether it answers at all."""

import asyncio

from tyrum_provider_host.admission import check_health
from tyrum_provider_host.contracts import KindContract
from tyrum_provider_host.control_client import ContractViolation
from tyrum_provider_host.errors import CallError, OutcomeUnknown, ProviderUnavailable
from tyrum_provider_host.listening import verify_listener
from tyrum_provider_host.record import HostFacts, Instance
from tyrum_provider_host.states import ProbeFacts

_LATE = "DEADLINE_EXCEEDED"


async def look(
    host: HostFacts, instance: Instance, contract: KindContract, declared: frozenset[str]
) -> tuple[str | None, ProbeFacts | None, bool]:
    """Check listener, health and probe; return the problem, the probe's answer, and whether none came.

    Raises:
        Rejected: another process took over the instance's socket.
    """
    probe = None
    try:
        await verify_listener(host, instance)
        async with asyncio.timeout(host.bounds.health):
            problem = await check_health(instance.control, contract)
            probe = await instance.control.probe(declared)
    except TimeoutError:
        return f"no answer within {host.bounds.health:g} s", probe, True
    except OSError as error:  # ours, such as no free descriptor: it tells nothing about the provider
        return f"the host cannot check: {error.strerror}", probe, False
    except (CallError, ContractViolation, ProviderUnavailable) as error:
        return str(error), probe, isinstance(error, OutcomeUnknown) and error.code == _LATE
    return problem, probe, False
