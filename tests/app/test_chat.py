"""The chat desk, without a gateway around it."""

from contextlib import aclosing
from pathlib import Path

from tests.app.test_engine import LIMITS
from tests.storage.builders import PRINCIPAL
from tyrum_gateway.app.agent import Agent
from tyrum_gateway.app.chat import ChatDesk
from tyrum_gateway.app.engine import Engine
from tyrum_gateway.app.streams import Streams
from tyrum_gateway.bootstrap.system import RandomIds, SystemClock
from tyrum_gateway.domain.commit import Accepted, Origin
from tyrum_gateway.domain.policy import Bundle
from tyrum_gateway.domain.principal import Principal, Role
from tyrum_gateway.models.offline import OfflineModel
from tyrum_gateway.storage import SqliteStore


async def test_a_message_that_is_sent_again_holds_no_more_than_one_watcher(tmp_path: Path) -> None:
    """Whoever repeats a message follows its turn once, and what was begun for a new one is gone at once."""
    async with await SqliteStore.open(tmp_path / "tyrum.sqlite3") as store:
        clock, ids, streams = SystemClock(), RandomIds(), Streams()
        # An engine that is not running: the turn stays unfinished.
        engine = Engine(
            agent=Agent("", OfflineModel(), Bundle("default", ()), {}),
            store=store,
            clock=clock,
            ids=ids,
            streams=streams,
            limits=LIMITS,
        )
        desk = ChatDesk(
            store=store, clock=clock, ids=ids, engine=engine, streams=streams, limits=LIMITS, origin=Origin()
        )
        anna = Principal(PRINCIPAL, "anna", frozenset({Role.CHAT}), "token")
        async with aclosing(desk.converse(anna, None, "1", "hello")) as first:
            (accepted,) = await anext(first)
            assert isinstance(accepted, Accepted)
            async with aclosing(desk.converse(anna, None, "1", "hello")) as again:
                (repeated,) = await anext(again)
                assert repeated == accepted
                held = {key: len(watchers) for key, watchers in streams._watchers.items()}
                assert held == {accepted.conversation_id: 1}
        assert not streams._watchers
