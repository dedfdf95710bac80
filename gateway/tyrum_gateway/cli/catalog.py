"""The provider catalogue over gRPC. Invariant: a state that was not observed is shown as unknown."""

import asyncio
from collections.abc import Iterable

import grpc.aio

from tyrum.catalog.v1.catalog_pb2 import (
    PROVIDER_LIFECYCLE_ADMITTED,
    PROVIDER_LIFECYCLE_QUARANTINED,
    PROVIDER_LIFECYCLE_REJECTED,
    STATE_VALUE_FALSE,
    STATE_VALUE_TRUE,
    AdmissionStage,
    GetProviderRequest,
    GetProviderResponse,
    ListProvidersRequest,
    Provider,
    ProviderLifecycle,
    RestartProviderRequest,
    StateValue,
)
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find, flags, reason_of
from tyrum_gateway.cli.failure import ExitCode, Failure, from_reason
from tyrum_gateway.cli.output import (
    Format,
    as_json,
    emit,
    emit_all,
    enum_word,
    fields,
    heading,
    note,
    prose,
    say,
)
from tyrum_gateway.cli.tables import Column, table

__all__ = ["explain", "find", "list_providers", "provider", "providers", "restart"]

_STAGE = ("STAGE", "RESULT", Column("FOUND", wraps=True))
_RESTART_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_BEGUN_SECONDS = 2.0
_REFUSED = frozenset({PROVIDER_LIFECYCLE_REJECTED, PROVIDER_LIFECYCLE_QUARANTINED})
_FEW = 5
"""Claims up to which a sentence names them."""
STATES = ("installed", "configured", "ready", "healthy", "capable", "degraded")


async def providers(gateway: Gateway) -> list[Provider]:
    """Read every configured provider."""
    response = await gateway.catalog.ListProviders(
        ListProvidersRequest(), metadata=gateway.metadata, timeout=DEADLINE
    )
    return list(response.providers)


async def provider(gateway: Gateway, name: str) -> GetProviderResponse:
    """Read everything about one provider."""
    return await gateway.catalog.GetProvider(
        GetProviderRequest(name=name), metadata=gateway.metadata, timeout=DEADLINE
    )


async def list_providers(target: Target, output: Format, *, wide: bool) -> None:
    """Print every configured provider."""
    async with connect(target) as gateway:
        found = await providers(gateway)
    if output is not Format.TEXT:
        emit_all(found, output)
        return
    if not found:
        note("no provider is configured")
        return
    rows = []
    for item in found:
        values = {state.state: value_word(state.value) for state in item.states}
        rows.append(
            (item.name, item.kind, lifecycle(item), *(values.get(state, "unknown") for state in STATES))
        )
    columns = (
        Column(name.upper(), leaves=leaves)
        for name, leaves in zip(STATES, range(len(STATES), 0, -1), strict=True)
    )
    table(("NAME", "KIND", "LIFECYCLE", *columns), rows, wide=wide)
    for item in found:
        if item.reason:
            prose(f"{item.name}: {item.reason}")
        for problem in item.profile_problems:
            prose(f"{item.name}: {problem}")
        if item.unverified_claims:
            prose(f"{item.name}: {_unverified(item)}")


async def explain(target: Target, name: str, output: Format) -> None:
    """Print everything known about one provider."""
    async with connect(target) as gateway:
        try:
            response = await provider(gateway, name)
        except grpc.aio.AioRpcError as error:
            raise _unknown(error, target) from error
    if output is Format.TEXT:
        _show(response)
    else:
        emit(as_json(response), output)


async def restart(target: Target, name: str, output: Format) -> None:
    """Start a provider anew, and print what became of it; one that is not admitted fails the command."""
    async with connect(target) as gateway:
        try:
            answer = await gateway.catalog.RestartProvider(
                RestartProviderRequest(name=name), metadata=gateway.metadata, timeout=DEADLINE
            )
        except grpc.aio.AioRpcError as error:
            raise _unknown(error, target) from error
        item = await _settled(gateway, name, answer.provider.instance_id)
    if output is not Format.TEXT:
        emit(as_json(item), output)
    if item.lifecycle != PROVIDER_LIFECYCLE_ADMITTED:
        raise Failure(
            f"provider `{name}` is {lifecycle(item)}: {item.reason}",
            hint=f"tyrum providers explain {name}{flags(target)}",
            code=ExitCode.PROVIDER_UNAVAILABLE,
        )
    if output is Format.TEXT:
        say(f"{name} {lifecycle(item)}, instance {item.instance_id}")


async def _settled(gateway: Gateway, name: str, before: str) -> Provider:
    """Wait until another instance is admitted, or none will be by itself; at most a minute."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        item, waited = (await provider(gateway, name)).provider, loop.time() - began
        admitted = item.lifecycle == PROVIDER_LIFECYCLE_ADMITTED and item.instance_id != before
        # What is refused has no instance to tell it by: it is believed once the restart must have begun.
        refused = item.lifecycle in _REFUSED and waited > _BEGUN_SECONDS
        if admitted or refused or waited > _RESTART_SECONDS:
            return item


def _unknown(error: grpc.aio.AioRpcError, target: Target) -> BaseException:
    if (reason := reason_of(error)) != "RESOURCE_NOT_FOUND":
        return error
    failure = from_reason(reason, error.details() or reason)
    failure.hint = f"tyrum providers list{flags(target)}"
    return failure


def _show(response: GetProviderResponse) -> None:
    item = response.provider
    heading(f"{item.name} ({item.kind})")
    fields(
        [
            ("lifecycle", lifecycle(item)),
            ("reason", item.reason),
            ("provider", f"{item.provider_id} {item.implementation_version}".strip()),
            ("contract", item.contract),
            ("instance", item.instance_id),
            ("profiles", ", ".join(item.profiles)),
        ]
    )
    for problem in item.profile_problems:
        prose(f"warning: {problem}")
    if item.unverified_claims:
        prose(f"warning: {_unverified(item)}")
    heading("States")
    states = [(state.state, value_word(state.value), state.reason) for state in item.states]
    table(("STATE", "VALUE", Column("WHY", wraps=True)), states)
    heading("Admission")
    stages = [
        (stage.stage, "passed" if stage.passed else "FAILED", stage.detail) for stage in response.stages
    ]
    table(_STAGE, stages)
    for title, lines in (("Claims", response.claims), ("Notes", response.notes), ("Log", response.log)):
        if lines:
            heading(title)
            for line in lines:
                prose(f"  {line}", indentation=4)


def _unverified(item: Provider) -> str:
    """Say which claims rest on the provider's word alone, and whether the operator takes it."""
    effect = (
        "taken all the same (`trust_claims`)" if item.trusts_claims else "not taken for `required_claims`"
    )
    count, verb = len(item.unverified_claims), "are" if len(item.unverified_claims) > 1 else "is"
    names = f"{count} claims" if count > _FEW else ", ".join(item.unverified_claims)
    return f"{names} {verb} stated by the provider, not verified; {effect}"


def show_stages(stages: Iterable[AdmissionStage]) -> None:
    """Print what admission checked and found."""
    rows = [(stage.stage, "passed" if stage.passed else "FAILED", stage.detail) for stage in stages]
    table(_STAGE, rows)


def lifecycle(item: Provider) -> str:
    """Write the lifecycle for people."""
    return enum_word(ProviderLifecycle, item.lifecycle, "PROVIDER_LIFECYCLE_")


def value_word(value: "StateValue.ValueType") -> str:
    """Write whether a state holds; anything not observed is unknown."""
    if value == STATE_VALUE_TRUE:
        return "yes"
    return "no" if value == STATE_VALUE_FALSE else "unknown"
