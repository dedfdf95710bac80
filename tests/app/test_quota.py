"""What one principal may have unfinished at once, from the configuration to the chat desk."""

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.config.files import MINIMAL, load
from tests.storage.builders import PRINCIPAL
from tyrum_gateway.app.agent import Agent
from tyrum_gateway.app.chat import ChatDesk
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.overrides import Overrides
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.bootstrap.compose import _limits
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.commit import Accepted, Origin
from tyrum_gateway.domain.errors import QuotaExceeded, translate
from tyrum_gateway.domain.policy import Bundle
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.models.offline import OfflineModel
from tyrum_gateway.storage import SqliteStore


async def _sent(desk: ChatDesk, principal: Principal, request_id: str, text: str) -> Accepted:
    """Send a message without watching its turn."""
    async with aclosing(desk.converse(principal, None, request_id, text)) as items:
        (accepted,) = await anext(items)
    assert isinstance(accepted, Accepted)
    return accepted


async def send(desk: ChatDesk, principal: Principal, request_id: str) -> Accepted:
    """Send a message, and go away when it is accepted."""
    async with aclosing(desk.converse(principal, None, request_id, "hello")) as items:
        (accepted,) = await anext(items)
    assert isinstance(accepted, Accepted)
    return accepted


async def test_a_principal_is_refused_beyond_its_unfinished_turns_and_nobody_else(tmp_path: Path) -> None:
    """`limits.unfinished_turns_per_principal` counts over all conversations, and an ended turn makes room."""
    limits = _limits(load(tmp_path, f"{MINIMAL}\nlimits: {{unfinished_turns_per_principal: 2}}\n"))
    async with await SqliteStore.open(tmp_path / "state" / "tyrum.db") as store:
        clock, ids, streams = SystemClock(), RandomIds(), Streams()
        # An engine that is not running: what is accepted stays unfinished.
        engine = Engine(
            agent=Agent("", OfflineModel(), Bundle("default", ()), {}),
            store=store,
            clock=clock,
            ids=ids,
            streams=streams,
            limits=limits,
            permissions=Overrides(store=store.overrides, clock=clock),
        )
        desk = ChatDesk(
            store=store, clock=clock, ids=ids, engine=engine, streams=streams, limits=limits, origin=Origin()
        )
        anna = Principal(PRINCIPAL, "anna", frozenset({Role.CHAT}), "token")
        bert = replace(anna, principal_id=ids.new(type(PRINCIPAL)))
        first = await _sent(desk, anna, "1", "hello")
        await _sent(desk, anna, "2", "hello")
        with pytest.raises(QuotaExceeded, match=r"2 unfinished turns.*cancel some") as refused:
            await _sent(desk, anna, "3", "hello")
        assert translate(refused.value).code == "RESOURCE_EXHAUSTED"
        await _sent(desk, bert, "3", "hello")
        await desk.cancel(anna, first.turn.turn_id, "enough")
        await _sent(desk, anna, "3", "hello")
