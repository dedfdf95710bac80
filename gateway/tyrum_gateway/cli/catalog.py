"""The provider catalogue over gRPC. Invariant: a state that was not observed is shown as unknown."""

from collections.abc import Iterable

from tyrum.catalog.v1.catalog_pb2 import (
    STATE_VALUE_FALSE,
    STATE_VALUE_TRUE,
    AdmissionStage,
    GetProviderRequest,
    GetProviderResponse,
    ListProvidersRequest,
    Provider,
    ProviderLifecycle,
    StateValue,
)
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find
from tyrum_gateway.cli.output import Format, as_json, emit, emit_all, enum_word, fields, heading, say, table

__all__ = ["explain", "find", "list_providers", "providers"]

STATES = ("installed", "configured", "ready", "healthy", "capable", "degraded")


async def providers(gateway: Gateway) -> list[Provider]:
    """Read every configured provider."""
    response = await gateway.catalog.ListProviders(
        ListProvidersRequest(), metadata=gateway.metadata, timeout=DEADLINE
    )
    return list(response.providers)


async def list_providers(target: Target, output: Format) -> None:
    """Print every configured provider."""
    async with connect(target) as gateway:
        found = await providers(gateway)
    if output is not Format.TEXT:
        emit_all(found, output)
        return
    rows = []
    for item in found:
        values = {state.state: value_word(state.value) for state in item.states}
        rows.append(
            (item.name, item.kind, lifecycle(item), *(values.get(state, "unknown") for state in STATES))
        )
    table(("NAME", "KIND", "LIFECYCLE", *(state.upper() for state in STATES)), rows)
    for item in found:
        if item.reason:
            say(f"{item.name}: {item.reason}")


async def explain(target: Target, name: str, output: Format) -> None:
    """Print everything known about one provider."""
    async with connect(target) as gateway:
        response = await gateway.catalog.GetProvider(
            GetProviderRequest(name=name), metadata=gateway.metadata, timeout=DEADLINE
        )
    if output is Format.TEXT:
        _show(response)
    else:
        emit(as_json(response), output)


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
    heading("States")
    states = [(state.state, value_word(state.value), state.reason) for state in item.states]
    table(("STATE", "VALUE", "WHY"), states)
    heading("Admission")
    stages = [
        (stage.stage, "passed" if stage.passed else "FAILED", stage.detail) for stage in response.stages
    ]
    table(("STAGE", "RESULT", "FOUND"), stages)
    for title, lines in (("Claims", response.claims), ("Notes", response.notes), ("Log", response.log)):
        if lines:
            heading(title)
            for line in lines:
                say(f"  {line}")


def show_stages(stages: Iterable[AdmissionStage]) -> None:
    """Print what admission checked and found."""
    rows = [(stage.stage, "passed" if stage.passed else "FAILED", stage.detail) for stage in stages]
    table(("STAGE", "RESULT", "FOUND"), rows)


def lifecycle(item: Provider) -> str:
    """Write the lifecycle for people."""
    return enum_word(ProviderLifecycle.Name(item.lifecycle), "PROVIDER_LIFECYCLE_")


def value_word(value: "StateValue.ValueType") -> str:
    """Write whether a state holds; anything not observed is unknown."""
    if value == STATE_VALUE_TRUE:
        return "yes"
    return "no" if value == STATE_VALUE_FALSE else "unknown"
