"""Payloads of events survive the database."""

import sqlite3
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.builders import message
from tyrum_gateway.domain import transcript
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.domain.ids import EntityId
from tyrum_gateway.storage import SqliteStore, codec
from tyrum_gateway.storage.codec import decode, encode
from tyrum_gateway.storage.times import from_microseconds

for _kind in EntityId.__subclasses__():
    st.register_type_strategy(
        _kind, st.builds(_kind.build, st.integers(0, (1 << 48) - 1), st.binary(min_size=10, max_size=10))
    )
st.register_type_strategy(datetime, st.integers(0, 1 << 52).map(from_microseconds))
# How fast a busy machine makes examples is no property of the codec.
_PATIENT = settings(
    deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
_PAYLOADS = st.one_of(*(st.from_type(kind) for kind in transcript.Payload.__args__))


@_PATIENT
@given(_PAYLOADS)
def test_every_payload_round_trips(payload: transcript.Payload) -> None:
    """Any payload of any kind decodes to an equal value, its evidence given back beside it."""
    kind, text = encode(payload)
    content = payload.content if isinstance(payload, transcript.ToolCallFinished) else ""
    assert decode(kind, text, content) == payload


@_PATIENT
@given(st.text(), st.from_type(transcript.ToolCallFinished))
def test_process_output_is_not_in_the_event(marker: str, payload: transcript.ToolCallFinished) -> None:
    """The text a tool gave to the model does not enter the event's JSON."""
    planted = transcript.ToolCallFinished(payload.call_id, payload.state, f"<{marker}>", payload.process)
    assert encode(planted) == encode(
        transcript.ToolCallFinished(payload.call_id, payload.state, "", payload.process)
    )


def test_each_kind_has_its_own_name() -> None:
    """No two payload kinds share a name in the database, and none is left out."""
    assert len(codec._READERS) == len(transcript.Payload.__args__)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"text":1', '{"state":"asleep","reason":""}'])
def test_damaged_json_is_refused(text: str) -> None:
    """JSON that is not of the kind's form is damage, never a guess."""
    with pytest.raises(StateUnusable, match="turn_finished"):
        decode("turn_finished", text, "")


async def test_an_unknown_state_in_the_database_is_refused(store: SqliteStore, database: Path) -> None:
    """A turn in a state that this gateway does not know is refused by name when it is read."""
    turn = (await store.accept(message())).turn
    other = sqlite3.connect(database)
    other.execute("UPDATE turns SET state = 'dreaming'")
    other.commit()
    other.close()
    with pytest.raises(StateUnusable, match="dreaming"):
        await store.turn(turn.turn_id)


async def test_an_unknown_kind_in_the_database_is_refused(store: SqliteStore, database: Path) -> None:
    """An event that a later gateway wrote is refused by name when it is read."""
    accepted = await store.accept(message())
    turn = accepted.turn
    other = sqlite3.connect(database)
    other.execute(
        "INSERT INTO events VALUES (?, 2, 1, ?, 'dream', '{}', NULL, 0)",
        (turn.conversation_id, turn.turn_id),
    )
    other.commit()
    other.close()
    with pytest.raises(StateUnusable, match="dream"):
        await store.events(turn.conversation_id, 0, 10)
