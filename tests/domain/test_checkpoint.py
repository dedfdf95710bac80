"""The conversation state is derived, bounded, and forgets the oldest first."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.samples import ALICE, SLOW, fresh
from tyrum_gateway.domain.checkpoint import MAX_CHARACTERS, Checkpoint, extend
from tyrum_gateway.domain.ids import CallId
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.domain.transcript import (
    AssistantMessage,
    Payload,
    ToolCallFinished,
    ToolCallProposed,
    TurnFinished,
    UserMessage,
)


def payloads(text: str) -> list[Payload]:
    """Record one turn."""
    call_id = fresh(CallId)
    return [
        UserMessage(text, ALICE.principal_id),
        ToolCallProposed(call_id, 1, "process.run", '{"argv": ["ls"]}'),
        ToolCallFinished(call_id, CallState.SUCCEEDED, "secret output"),
        AssistantMessage(2, 1, "fine"),
        TurnFinished(TurnState.COMPLETED),
    ]


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.lists(st.text(max_size=600), min_size=1, max_size=40))
def test_it_stays_bounded_and_keeps_the_newest(turns: list[str]) -> None:
    """However long and many the turns are, the state stays below its bound and holds the last one."""
    state = Checkpoint()
    for number, text in enumerate(turns, 1):
        state = extend(state, number, payloads(text))
        assert len(state.summary) <= MAX_CHARACTERS
        assert state.through_turn == number
        assert f"Turn {number}\n" in state.summary


def test_it_names_what_was_said_and_called() -> None:
    """A paragraph has the user's text, the calls and the answer, and no tool output."""
    state = extend(Checkpoint(), 1, payloads("list\n\nthe  files"))
    assert state.summary == (
        'Turn 1\nuser: list the files\ncalled process.run: {"argv": ["ls"]}\nassistant: fine'
    )


def test_the_oldest_turn_is_dropped_first() -> None:
    """Paragraphs leave from the front, whole."""
    state = Checkpoint()
    for number in range(1, 100):
        state = extend(state, number, payloads("x" * 200))
    numbers = [int(part.split("\n")[0].removeprefix("Turn ")) for part in state.summary.split("\n\n")]
    assert numbers == list(range(numbers[0], 100))
    assert numbers[0] > 1


def test_it_follows_from_the_transcript_alone() -> None:
    """The same turn gives the same state."""
    recorded = payloads("hello")
    assert extend(Checkpoint(), 1, recorded) == extend(Checkpoint(), 1, recorded)
