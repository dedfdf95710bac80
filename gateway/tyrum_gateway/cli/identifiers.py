"""Ids as people give them: whole, by the beginning that only one has, or as the last one.

Invariants: what is meant is one thing or nothing is done; a beginning is looked up among all that the caller
may see; what is offered for completion holds no text of a model.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tyrum.approval.v1.approval_pb2 import ListApprovalsRequest
from tyrum.catalog.v1.catalog_pb2 import ListProvidersRequest
from tyrum.chat.v1.chat_pb2 import ListConversationsRequest
from tyrum.identity.v1.identity_pb2 import ListPrincipalsRequest, ListTokensRequest, WhoAmIRequest
from tyrum.policy.v1.policy_pb2 import ListOverridesRequest
from tyrum.run.v1.run_pb2 import ListRunsRequest
from tyrum_gateway.cli.approval_client import call_line, outcome_word
from tyrum_gateway.cli.connection import DEADLINE, Gateway, Target, connect, find, flags
from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.output import moment, note
from tyrum_gateway.cli.terminal import shortened
from tyrum_gateway.cli.typed import LISTS, typed

_PAGE = 200
_LEAST = 4
"""Characters behind the kind of an id below which a beginning says too little."""

_WHOLE = 26
_BEGINNING = re.compile(r"(?:[a-z]+_)?[0-9a-hjkmnp-tv-z]{0,25}")
_LISTED = 10
_WIDTH = 44
_PATIENCE = 1.0
"""Seconds that a completion may take."""

_SAFE = re.compile(r"[A-Za-z0-9._@-]+")
"""What a shell may be given: completion scripts evaluate it."""


@dataclass(frozen=True, slots=True)
class Known:
    """One thing that has an id."""

    names: tuple[str, ...]
    """Its id, and others by which it is known."""
    what: str
    """What it is, from anywhere."""
    waits: bool = True
    """Whether it can still be decided on."""
    owner: str = ""
    """Principal whose it is."""


async def _approvals(gateway: Gateway, token: str) -> tuple[list[Known], str]:
    request = ListApprovalsRequest(include_resolved=True, page_size=_PAGE, page_token=token)
    page = await gateway.approvals.ListApprovals(request, metadata=gateway.metadata, timeout=DEADLINE)
    found = [
        Known((item.approval_id,), f"{outcome_word(item)}: {call_line(item)}", not item.outcome)
        for item in page.approvals
    ]
    return found, page.next_page_token


async def _conversations(gateway: Gateway, token: str) -> tuple[list[Known], str]:
    request = ListConversationsRequest(page_size=_PAGE, page_token=token)
    page = await gateway.chat.ListConversations(request, metadata=gateway.metadata, timeout=DEADLINE)
    return [
        Known((item.conversation_id,), f"{moment(item.updated_at)} {item.title}", owner=item.principal_id)
        for item in page.conversations
    ], page.next_page_token


async def _runs(gateway: Gateway, token: str) -> tuple[list[Known], str]:
    request = ListRunsRequest(page_size=_PAGE, page_token=token)
    page = await gateway.runs.ListRuns(request, metadata=gateway.metadata, timeout=DEADLINE)
    return [
        Known(
            (item.run_id, item.turn_id),
            f"{moment(item.created_at)} of {item.conversation_id}",
            not item.HasField("ended_at"),
        )
        for item in page.runs
    ], page.next_page_token


async def _turns(gateway: Gateway, token: str) -> tuple[list[Known], str]:
    found, following = await _runs(gateway, token)
    return [Known(item.names[1:], item.what, item.waits) for item in found], following


async def _overrides(gateway: Gateway, token: str) -> tuple[list[Known], str]:
    request = ListOverridesRequest(include_ended=True, page_size=_PAGE, page_token=token)
    page = await gateway.policy.ListOverrides(request, metadata=gateway.metadata, timeout=DEADLINE)
    return [
        Known((item.override_id,), item.summary, not item.HasField("revoked_at")) for item in page.overrides
    ], page.next_page_token


async def _tokens(gateway: Gateway, token: str) -> tuple[list[Known], str]:
    request = ListTokensRequest(include_unusable=True, page_size=_PAGE, page_token=token)
    page = await gateway.identity.ListTokens(request, metadata=gateway.metadata, timeout=DEADLINE)
    return [
        Known((item.token_id,), item.label, not item.HasField("revoked_at")) for item in page.tokens
    ], page.next_page_token


async def _principals(gateway: Gateway, token: str) -> tuple[list[Known], str]:
    request = ListPrincipalsRequest(page_size=_PAGE, page_token=token)
    page = await gateway.identity.ListPrincipals(request, metadata=gateway.metadata, timeout=DEADLINE)
    return [Known((item.name,), "") for item in page.principals], page.next_page_token


async def _providers(gateway: Gateway, _token: str) -> tuple[list[Known], str]:
    request = ListProvidersRequest()
    page = await gateway.catalog.ListProviders(request, metadata=gateway.metadata, timeout=DEADLINE)
    return [Known((item.name,), "") for item in page.providers], ""


_PAGES: Mapping[str, Callable[[Gateway, str], Awaitable[tuple[list[Known], str]]]] = {
    "approval": _approvals,
    "conversation": _conversations,
    "run": _runs,
    "turn": _turns,
    "override": _overrides,
    "token": _tokens,
    "principal": _principals,
    "provider": _providers,
}
_BEGINS = {
    "approval": ("appr_",),
    "conversation": ("conv_",),
    "run": ("run_", "turn_"),
    "turn": ("turn_",),
    "override": ("over_",),
    "token": ("tok_",),
}


def whole(target: Target, kind: str, given: str) -> str:
    """Return the id that is meant; what is no beginning of an id is left to the gateway.

    Raises:
        Failure: It is too short, or begins no id that the caller sees, or more than one.
    """
    begins = next((begin for begin in _BEGINS[kind] if given.startswith(begin)), "")
    rest = given.removeprefix(begins)
    if not given or len(rest) >= _WHOLE or not _BEGINNING.fullmatch(rest) or "_" in rest:
        return given
    if len(rest) < _LEAST:
        raise Failure(
            f"`{typed(f'{kind}_id')}` must be `{_BEGINS[kind][0]}` and at least {_LEAST} characters more, "
            f"not `{given}`: that is too short to name one {kind}",
            hint=f"tyrum {LISTS[kind]}{flags(target)}",
            code=ExitCode.USAGE,
        )
    found = [
        (name, item)
        for item in asyncio.run(_all(target, kind))
        for name in item.names
        if name.startswith(given if begins else tuple(f"{begin}{given}" for begin in _BEGINS[kind]))
    ]
    if not found:
        raise Failure(f"no {kind} begins with `{given}`", hint=f"tyrum {LISTS[kind]}{flags(target)}")
    # A run and its turn are one thing under two names.
    if len({id(item) for _, item in found}) > 1:
        raise _several(kind, f"`{given}` begins", [(name, item) for name, item in found])
    return found[0][0]


def last(target: Target, kind: str, *, mine: bool = False) -> str:
    """Return the id of the newest; with `mine` of the caller's own.

    Raises:
        Failure: There is none.
    """
    found = asyncio.run(_newest(target, kind, mine=mine))
    if found is None:
        raise Failure(f"there is no {kind} yet", hint=f"tyrum {LISTS[kind]}{flags(target)}")
    note(f"{kind} {found.names[0]}")
    return found.names[0]


def only_one_that_waits(target: Target) -> str:
    """Return the id of the approval that waits, when it is the only one.

    Raises:
        Failure: None waits, or several do.
    """
    waiting = [(item.names[0], item) for item in asyncio.run(_all(target, "approval")) if item.waits]
    if not waiting:
        raise Failure("nothing waits for an approval")
    if len(waiting) > 1:
        raise _several("approval", "`--last` is not clear: there wait", waiting)
    note(f"approval {waiting[0][0]}")
    return waiting[0][0]


def offered(kind: str, parameters: Mapping[str, Any], incomplete: str, *, waiting: bool) -> list[str]:
    """Return what a shell completes; nothing where no gateway answers within a second."""
    try:
        target = find(parameters.get("state_dir"), parameters.get("address"))
        found = asyncio.run(_soon(target, kind))
    except Exception:  # noqa: BLE001 - a completion says nothing, whatever is wrong
        return []
    names = [name for item in found if item.waits or not waiting for name in item.names]
    return [name for name in names if name.startswith(incomplete) and _SAFE.fullmatch(name)]


def _several(kind: str, what: str, found: list[tuple[str, Known]]) -> Failure:
    lines = [f"  {name}  {shortened(item.what, _WIDTH)}" for name, item in found[:_LISTED]]
    if len(found) > _LISTED:
        lines.append(f"  … and {len(found) - _LISTED} more")
    return Failure(
        "\n".join([f"{what} {len(found)} {kind}s:", *lines]),
        hint="give more of its id",
        code=ExitCode.USAGE,
    )


async def _all(target: Target, kind: str) -> list[Known]:
    found: list[Known] = []
    token = ""
    async with connect(target) as gateway:
        while True:
            page, token = await _PAGES[kind](gateway, token)
            found += page
            if not token:
                return found


async def _soon(target: Target, kind: str) -> list[Known]:
    async with asyncio.timeout(_PATIENCE), connect(target) as gateway:
        found, _ = await _PAGES[kind](gateway, "")
        return found


async def _newest(target: Target, kind: str, *, mine: bool) -> Known | None:
    if kind == "approval":  # listed oldest first
        return max(await _all(target, kind), key=lambda item: item.names[0], default=None)
    token = ""
    async with connect(target) as gateway:
        owner = ""
        if mine:
            me = await gateway.identity.WhoAmI(WhoAmIRequest(), metadata=gateway.metadata, timeout=DEADLINE)
            owner = me.principal.principal_id
        while True:
            page, token = await _PAGES[kind](gateway, token)
            for item in page:
                if not owner or item.owner == owner:
                    return item
            if not token:
                return None
