"""One turn as people see it: text as it is generated and a notice for everything a tool call goes through.

This is the projection `chat.ui-message.stream`: a fold over durable events and deltas. Invariants: no text is
shown twice, whatever was lost or repeated on the way; the durable message has the last word on an attempt.
"""

import json
from dataclasses import dataclass, field

from tyrum.chat.v1.chat_pb2 import StreamItem
from tyrum.chat.v1.event_pb2 import (
    APPROVAL_OUTCOME_APPROVED,
    APPROVAL_OUTCOME_DENIED,
    APPROVAL_OUTCOME_EXPIRED,
    CALL_STATE_DENIED,
    CALL_STATE_SUCCEEDED,
    DECISION_ALLOW,
    DECISION_DENY,
    TURN_STATE_UNSPECIFIED,
    ApprovalOutcome,
    ApprovalResolved,
    AssistantMessage,
    CallState,
    Event,
    ProcessOutcome,
    ToolCallFinished,
    ToolCallProposed,
    TurnState,
)
from tyrum_gateway.cli.output import enum_word, moment
from tyrum_gateway.cli.terminal import shortened, visible_line

_ARGUMENT_WIDTH = 300


@dataclass(frozen=True, slots=True)
class Text:
    """Generated text that continues what was shown before."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A line about what happens, already safe to show."""

    text: str
    tone: str = field(default="", compare=False)
    """How the call stands: `allowed`, `waiting`, `denied` or `failed`; the words of the line say it too."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, as the model was told it: text of several lines from anywhere."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """An approval waits for a human."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class Answered:
    """An approval has an outcome, from here or from elsewhere."""

    approval_id: str
    how: str = ""
    """The outcome, by whom and why; already safe to show."""


Piece = Text | Notice | Output | Asked | Answered


@dataclass(slots=True)
class _Shown:
    """What of one attempt is on the screen: always a prefix of its text, in UTF-8 bytes."""

    turn_id: str = ""
    step: int = 0
    attempt: int = 0
    length: int = 0


@dataclass(slots=True)
class TurnView:
    """Folds a stream of one conversation into pieces to show; items of other turns are left out.

    An empty `turn_id` takes all turns.
    """

    turn_id: str = ""
    sequence: int = 0
    state: "TurnState.ValueType" = TURN_STATE_UNSPECIFIED
    reason: str = ""
    refused: bool = False
    """Whether an approval was denied or expired."""
    running: dict[str, str] = field(default_factory=dict)
    """Tools of the calls that run, by call."""
    _shown: _Shown = field(default_factory=_Shown)
    _tools: dict[str, str] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)
    _given_up: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By turn: an attempt that was abandoned, and why, until another one is seen to begin."""

    @property
    def finished(self) -> bool:
        """Whether the turn rests."""
        return self.state != TURN_STATE_UNSPECIFIED

    def feed(self, item: StreamItem) -> list[Piece]:
        """Take the next item of a stream."""
        if item.HasField("event"):
            return self.event(item.event)
        if item.HasField("delta"):
            delta = item.delta
            if self._mine(delta.turn_id):
                return self._text(delta.turn_id, delta.step, delta.attempt, delta.offset, delta.text)
        elif item.HasField("partial"):
            partial = item.partial
            if self._mine(partial.turn_id):
                return self._text(
                    partial.turn_id, partial.step, partial.attempt, partial.offset, partial.text
                )
        # A gap needs nothing: text behind it does not continue what is shown and waits for the message.
        return []

    def event(self, event: Event) -> list[Piece]:
        """Take the next durable event; one that was seen before is left out."""
        if event.sequence <= self.sequence:
            return []
        self.sequence = event.sequence
        if not self._mine(event.turn_id):
            return []
        given_up = self._given_up.pop(event.turn_id, None)
        if given_up is None or event.HasField("turn_finished"):
            return self._payload(event)
        return [_starting_over(given_up[1]), *self._payload(event)]

    def _payload(self, event: Event) -> list[Piece]:
        match event.WhichOneof("payload"):
            case "assistant_message":
                return self._message(event.turn_id, event.assistant_message)
            case "tool_call_proposed":
                return [self._proposed(event.tool_call_proposed)]
            case "tool_call_decided":
                decided = event.tool_call_decided
                rule = f"rule `{visible_line(decided.rule_id)}`"
                if decided.decision == DECISION_ALLOW:
                    return [self._notice(decided.call_id, "allowed", f"by {rule}")]
                if decided.decision == DECISION_DENY:
                    self._reasons[decided.call_id] = f"by {rule}: {visible_line(decided.reason)}"
                return []
            case "approval_requested":
                asked = event.approval_requested
                until = f"for approval {asked.approval_id}, until {moment(asked.expires_at)}"
                return [self._notice(asked.call_id, "waiting", until), Asked(asked.approval_id)]
            case "approval_resolved":
                return self._resolved(event.approval_resolved)
            case "tool_call_started":
                started = event.tool_call_started
                self.running[started.call_id] = self._tools.get(started.call_id, "tool")
                return [self._notice(started.call_id, "running", started.process_id or started.operation_id)]
            case "tool_call_finished":
                return self._finished(event.tool_call_finished)
            case "attempt_abandoned":
                given_up = event.attempt_abandoned
                self._given_up[event.turn_id] = (given_up.attempt, visible_line(given_up.reason))
            case "turn_finished":
                self.state = event.turn_finished.state
                self.reason = event.turn_finished.reason
            case "user_message" | None:
                pass
        return []

    def _mine(self, turn_id: str) -> bool:
        return not self.turn_id or turn_id == self.turn_id

    def _text(self, turn_id: str, step: int, attempt: int, offset: int, text: str) -> list[Piece]:
        shown = self._shown
        if turn_id == shown.turn_id and (step, attempt) < (shown.step, shown.attempt):
            return []
        if (turn_id, step, attempt) != (shown.turn_id, shown.step, shown.attempt):
            shown = self._shown = _Shown(turn_id, step, attempt)
        before: list[Piece] = []
        if attempt > self._given_up.get(turn_id, (attempt, ""))[0]:
            before = [_starting_over(self._given_up.pop(turn_id)[1])]
        data = text.encode()
        if offset > shown.length or offset + len(data) <= shown.length:
            return before
        new = data[shown.length - offset :].decode(errors="replace")
        shown.length = offset + len(data)
        return [*before, Text(new)]

    def _message(self, turn_id: str, message: AssistantMessage) -> list[Piece]:
        pieces = self._text(turn_id, message.step, message.attempt, 0, message.text)
        return [*pieces, Notice("[incomplete] the model was cut off")] if message.incomplete else pieces

    def _proposed(self, call: ToolCallProposed) -> Notice:
        self._tools[call.call_id] = visible_line(call.tool)
        return self._notice(call.call_id, "proposed", _arguments(call.arguments_json))

    def _resolved(self, resolved: ApprovalResolved) -> list[Piece]:
        why = visible_line(resolved.reason)
        who = ""
        if resolved.resolved_by:
            who = f"by {visible_line(resolved.resolved_by)} ({visible_line(resolved.method)})"
            who += ", and calls like it from now on" if resolved.override_id else ""
        text = ": ".join(part for part in (who, why) if part)
        word = enum_word(ApprovalOutcome, resolved.outcome, "APPROVAL_OUTCOME_")
        answered = Answered(resolved.approval_id, f"{word} {text}".strip())
        if resolved.outcome == APPROVAL_OUTCOME_APPROVED:
            return [answered, self._notice(resolved.call_id, "approved", text)]
        if resolved.outcome in {APPROVAL_OUTCOME_DENIED, APPROVAL_OUTCOME_EXPIRED}:
            self.refused = True
            expired = resolved.outcome == APPROVAL_OUTCOME_EXPIRED
            self._reasons[resolved.call_id] = "approval expired" if expired else text
            return [answered]
        return [answered, self._notice(resolved.call_id, f"approval {word}", why)]

    def _finished(self, finished: ToolCallFinished) -> list[Piece]:
        self.running.pop(finished.call_id, None)
        if finished.state == CALL_STATE_DENIED:
            return [self._notice(finished.call_id, "denied", self._reasons.get(finished.call_id, ""))]
        state = enum_word(CallState, finished.state, "CALL_STATE_")
        first, _, rest = finished.content.partition("\n")
        if not finished.HasField("process"):
            why = f": {visible_line(first)}" if finished.state != CALL_STATE_SUCCEEDED and first else ""
            printed = rest if why else finished.content
            return _with_output(self._notice(finished.call_id, "finished", state + why), printed)
        ended = f"{state}: {_outcome(finished.process)}"
        # The first line says in words for the model what stands in the notice.
        return _with_output(self._notice(finished.call_id, "finished", ended), rest)

    def _notice(self, call_id: str, word: str, text: str) -> Notice:
        tool = self._tools.get(call_id, "tool")
        tone = _TONES.get(word, "") or next((tone for end, tone in _ENDS.items() if text.startswith(end)), "")
        return Notice(f"[{tool} {word}] {text}".rstrip(), tone)


_TONES = {"allowed": "allowed", "approved": "allowed", "waiting": "waiting", "denied": "denied"}
_ENDS = {"failed": "failed", "outcome unknown": "failed", "cancelled": "denied"}


def _with_output(notice: Notice, printed: str) -> list[Piece]:
    return [notice, Output(printed)] if printed.strip() else [notice]


def _starting_over(why: str) -> Notice:
    return Notice(f"[starting over] {why}")


def _arguments(arguments_json: str) -> str:
    """Show `{"argv": ["ls", "-l"]}` compactly; anything that is not JSON as it came."""
    try:
        text = json.dumps(json.loads(arguments_json), ensure_ascii=False)
    except (ValueError, RecursionError):
        text = arguments_json
    return shortened(text, _ARGUMENT_WIDTH)


def _outcome(process: ProcessOutcome) -> str:
    if process.HasField("exit_code"):
        end = f"exit {process.exit_code}"
    elif process.HasField("signal"):
        end = f"signal {process.signal}"
    else:
        end = visible_line(process.cause)
    if process.cause not in {"exited", "signaled", ""} and end != process.cause:
        end = f"{visible_line(process.cause)}, {end}"
    seconds = process.duration.seconds + process.duration.nanos / 1e9
    output = f"{process.stdout.total_bytes} B out, {process.stderr.total_bytes} B err"
    return f"{end}, {seconds:.2f} s, {output}"
