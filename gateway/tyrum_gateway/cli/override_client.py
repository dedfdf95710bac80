"""Standing permissions over gRPC, and how they are shown."""

import time

from tyrum.policy.v1.policy_pb2 import ListOverridesRequest, Override, RevokeOverrideRequest
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find
from tyrum_gateway.cli.output import Format, as_json, emit, emit_all, moment, note, say
from tyrum_gateway.cli.tables import Column, table

__all__ = ["find", "list_overrides", "revoke"]

_PAGE = 200
_COLUMNS = (
    Column("OVERRIDE"),
    Column("STATE", least=16),
    Column("BY", leaves=1),
    Column("AGENT", leaves=2),
    Column("PERMITS", least=28),
)


async def list_overrides(target: Target, output: Format, *, ended: bool, wide: bool) -> None:
    """Print the overrides in force, or all of them."""
    async with connect(target) as gateway:
        found = await _every(gateway, ended=ended)
    if output is not Format.TEXT:
        emit_all(found, output)
        return
    if not found:
        note("nothing was permitted for good" if ended else "nothing is permitted for good")
        return
    table(
        _COLUMNS,
        [(item.override_id, _state(item), item.created_by, item.agent, item.summary) for item in found],
        wide=wide,
    )


async def revoke(target: Target, override_id: str, reason: str, output: Format) -> None:
    """End an override and print it."""
    request = RevokeOverrideRequest(override_id=override_id, reason=reason)
    async with connect(target) as gateway:
        response = await gateway.policy.RevokeOverride(request, metadata=gateway.metadata, timeout=DEADLINE)
    if output is Format.TEXT:
        say(f"{response.override.override_id} {_state(response.override)}")
    else:
        emit(as_json(response.override), output)


async def _every(gateway: Gateway, *, ended: bool) -> list[Override]:
    found: list[Override] = []
    token = ""
    while True:
        page = await gateway.policy.ListOverrides(
            ListOverridesRequest(include_ended=ended, page_size=_PAGE, page_token=token),
            metadata=gateway.metadata,
            timeout=DEADLINE,
        )
        found += page.overrides
        token = page.next_page_token
        if not token:
            return found


def _state(override: Override) -> str:
    if override.HasField("revoked_at") and override.revoked_reason.startswith("superseded: "):
        return f"superseded {moment(override.revoked_at)} by {override.revoked_by}"
    if override.HasField("revoked_at"):
        return f"revoked {moment(override.revoked_at)} by {override.revoked_by}"
    if override.HasField("expires_at") and override.expires_at.seconds <= time.time():
        return f"expired {moment(override.expires_at)}"
    return f"until {moment(override.expires_at)}"
