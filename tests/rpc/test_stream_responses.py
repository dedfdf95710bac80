"""Items of a stream are written in order, as many to a response as may stand in one."""

import pytest

from tests.domain.samples import ALICE, NOW, fresh
from tyrum.chat.v1 import chat_pb2
from tyrum_gateway.app.streams import Attempt, Delta, Gap
from tyrum_gateway.domain.ids import CallId, ConversationId, TurnId
from tyrum_gateway.domain.policy import Decision
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.transcript import (
    AttemptAbandoned,
    Event,
    Payload,
    ToolCallDecided,
    ToolCallFinished,
    ToolCallProposed,
    TurnFinished,
    UserMessage,
)
from tyrum_gateway.rpc.convert_event import FULL_CHARACTERS, MAX_ITEMS, StreamItem, responses

LONG = "x" * FULL_CHARACTERS


def _said(sequence: int, text: str) -> Event:
    return Event(sequence, fresh(ConversationId), fresh(TurnId), NOW, UserMessage(text, ALICE.principal_id))


def _sizes(items: list[StreamItem]) -> list[int]:
    return [len(response.items) for response in responses(chat_pb2.WatchResponse, items)]


def test_what_is_ready_goes_out_together_and_in_order() -> None:
    """Events, text and gaps that are ready at one moment are one response; nothing ready is none."""
    delta = Delta(Attempt(fresh(TurnId), 1, 2), 7, "text")
    (response,) = responses(chat_pb2.SendMessageResponse, [_said(1, "a"), delta, Gap(3), _said(2, "b")])
    assert [item.WhichOneof("item") for item in response.items] == ["event", "delta", "gap", "event"]
    assert response.items[1].delta.offset == 7
    assert _sizes([]) == []


def test_a_response_has_an_end() -> None:
    """Neither many items nor long ones make a response that the other end could refuse."""
    assert _sizes([_said(number, "x") for number in range(2 * MAX_ITEMS + 1)]) == [MAX_ITEMS, MAX_ITEMS, 1]
    long = "x" * FULL_CHARACTERS
    assert _sizes([_said(1, "x"), _said(2, long), _said(3, long), _said(4, "x"), _said(5, "x")]) == [2, 1, 2]


@pytest.mark.parametrize(
    "payload",
    [
        ToolCallProposed(fresh(CallId), 1, LONG, "{}"),
        ToolCallProposed(fresh(CallId), 1, "process.run", LONG),
        ToolCallDecided(fresh(CallId), Decision.DENY, "rule", "sha256:0", LONG, ""),
        ToolCallDecided(fresh(CallId), Decision.DENY, "rule", "sha256:0", "", LONG),
        ToolCallFinished(fresh(CallId), CallState.FAILED, LONG),
        AttemptAbandoned(1, 1, LONG),
        TurnFinished(TurnState.FAILED, LONG),
    ],
    ids=["tool", "arguments", "target", "reason", "content", "abandoned", "finished"],
)
def test_long_text_in_whatever_field_does_not_add_up(payload: Payload) -> None:
    """Tool names as long as a model likes make no response that a client refuses, time and again."""
    event = Event(1, fresh(ConversationId), fresh(TurnId), NOW, payload)
    assert _sizes([event] * 4) == [1] * 4
