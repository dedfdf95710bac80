"""Admission by what the services answer to a wrong bearer and to an empty request.

Invariant: nothing here has an effect at a provider that keeps its contract: the RPCs of the first check are
free of effects, and an empty request lacks what is REQUIRED.
"""

import asyncio

from tyrum_provider_host import proof
from tyrum_provider_host.contracts import KindContract
from tyrum_provider_host.errors import OutcomeUnknown
from tyrum_provider_host.record import AdmissionRecord, HostFacts, Instance
from tyrum_provider_host.rejection import AUTHOR, Rejected, Stage

_CONTROL = "tyrum.provider.v1.ProviderControlService"
_UNIMPLEMENTED = "UNIMPLEMENTED"
_UNAUTHENTICATED = "UNAUTHENTICATED"


async def check_bearer(
    host: HostFacts, contract: KindContract, record: AdmissionRecord, instance: Instance
) -> None:
    """Call both services with a bearer that is not the instance's.

    Raises:
        Rejected: one of them does not refuse it.
        CallError: the provider did not answer.
    """
    wrong = proof.encode(proof.new_nonce())
    domain = [(contract.service, name) for name in contract.required_methods[:1]]
    for service, method in [(_CONTROL, "GetDescriptor"), *domain]:
        error = await instance.channel.attempt(service, method, timeout=host.bounds.descriptor, bearer=wrong)
        if error is not None and error.code == _UNAUTHENTICATED:
            continue
        if isinstance(error, OutcomeUnknown):
            raise error
        raise Rejected(
            Stage.BEARER,
            f"{service}/{method} does not refuse a wrong bearer",
            expected=_UNAUTHENTICATED,
            found="an answer" if error is None else error.code,
            action=f"{AUTHOR}: check the bearer first, on every RPC but Handshake and health",
        )
    record.passed(Stage.BEARER, "a wrong bearer is refused")


async def check_methods(
    host: HostFacts, contract: KindContract, record: AdmissionRecord, instance: Instance
) -> None:
    """Send an empty request to every RPC that the kind requires.

    Raises:
        Rejected: some are not there.
    """
    names = contract.required_methods
    errors = await asyncio.gather(
        *(instance.channel.attempt(contract.service, name, timeout=host.bounds.probe) for name in names)
    )
    missing = [
        name
        for name, error in zip(names, errors, strict=True)
        if error is not None and error.code == _UNIMPLEMENTED
    ]
    if missing:
        raise Rejected(
            Stage.SERVICE,
            f"{contract.service} lacks RPCs that {contract.label} requires: {', '.join(missing)}",
            action=f"{AUTHOR}: serve them; an empty request is refused with FIELD_INVALID",
        )
    record.passed(Stage.SERVICE, f"all {len(names)} required RPCs are served")
