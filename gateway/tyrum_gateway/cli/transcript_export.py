"""Whole transcripts, to keep or to hand over. Invariant: every event in order, complete, or no export at all.

What it says comes from the gateway's own rows: no provider is asked, and none need exist any more.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tyrum.chat.v1.chat_pb2 import Conversation, GetConversationRequest
from tyrum.chat.v1.event_pb2 import ApprovalOutcome, CallState, Decision, Event, TurnState
from tyrum_gateway.cli.connection import DEADLINE, Target, connect, find
from tyrum_gateway.cli.destination import destination
from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.output import Format, as_json, counted, enum_word, moment, named, note, on_terminal
from tyrum_gateway.cli.progress import counting
from tyrum_gateway.cli.terminal import visible, visible_line
from tyrum_gateway.cli.transcript import events

__all__ = ["export", "find"]


async def export(target: Target, conversation_id: str, file: Path | None, output: Format) -> None:
    """Write a conversation: its head, then every event that was durable when the export began.

    Raises:
        Failure: An event is missing.
    """
    async with connect(target) as gateway:
        response = await gateway.chat.GetConversation(
            GetConversationRequest(conversation_id=conversation_id),
            metadata=gateway.metadata,
            timeout=DEADLINE,
        )
        head = response.conversation
        alone = file is not None or not on_terminal()
        with destination(file) as out, counting("events", head.last_sequence, alone=alone) as progress:
            _begin(out, head, output)
            count = 0
            async for event in events(gateway, conversation_id):
                progress.step()
                if count == head.last_sequence:
                    break
                count += 1
                if event.sequence != count:
                    raise Failure(f"event {count} of the conversation is missing")
                _event(out, event, output)
            if count != head.last_sequence:
                raise Failure(f"event {count + 1} of the conversation is missing")
            if output is Format.JSON:
                out.write("\n]}\n")
    if file is not None:
        note(f"{counted(count, 'event')} written to {file}")


def _begin(out: TextIO, head: Conversation, output: Format) -> None:
    match output:
        case Format.JSON:
            out.write('{"conversation": ' + json.dumps(as_json(head), indent=2) + ', "events": [\n')
        case Format.JSONL:
            out.write(json.dumps({"conversation": as_json(head)}) + "\n")
        case Format.TEXT:
            out.write(f"Conversation {head.conversation_id}\n")
            out.write(f"Opened {moment(head.created_at)} by {named(head.principal, head.principal_id)}\n")
            out.write(f"Events: {head.last_sequence}\n")


def _event(out: TextIO, event: Event, output: Format) -> None:
    match output:
        case Format.JSON:
            out.write(("" if event.sequence == 1 else ",\n") + json.dumps(as_json(event)))
        case Format.JSONL:
            out.write(json.dumps({"event": as_json(event)}) + "\n")
        case Format.TEXT:
            payload = event.WhichOneof("payload") or "event"
            title = payload.replace("_", " ")
            out.write(f"\n#{event.sequence} {moment(event.created_at)} {event.turn_id} {title}\n")
            for line in _lines(event):
                out.write(f"    {line}\n")


def _lines(event: Event) -> Iterator[str]:
    """Write everything an event holds."""
    match event.WhichOneof("payload"):
        case "user_message":
            yield f"from {event.user_message.principal_id}"
            yield from _text(event.user_message.text)
        case "assistant_message":
            said = event.assistant_message
            yield f"step {said.step}, attempt {said.attempt}" + (", incomplete" if said.incomplete else "")
            yield from _text(said.text)
        case "tool_call_proposed":
            proposed = event.tool_call_proposed
            yield f"{proposed.call_id} step {proposed.step}: {visible_line(proposed.tool)}"
            yield from _text(proposed.arguments_json)
        case "tool_call_decided":
            decided = event.tool_call_decided
            decision = enum_word(Decision, decided.decision, "DECISION_")
            rule = f"rule {decided.rule_id}" if decided.rule_id else "no rule"
            yield f"{decided.call_id}: {decision}, {rule} of {decided.policy_digest}"
            if decided.author:
                yield f"author of the rule: {visible_line(decided.author)}"
            yield from _text(decided.target)
            yield from _text(decided.reason)
        case "approval_requested":
            asked = event.approval_requested
            yield f"{asked.call_id}: {asked.approval_id}, expires {moment(asked.expires_at)}"
        case "approval_resolved":
            answer = event.approval_resolved
            outcome = enum_word(ApprovalOutcome, answer.outcome, "APPROVAL_OUTCOME_")
            by = f" by {visible_line(answer.resolved_by)} ({answer.method})" if answer.resolved_by else ""
            yield f"{answer.call_id}: {answer.approval_id} {outcome}{by}"
            yield from _text(answer.reason)
        case "tool_call_started":
            begun = event.tool_call_started
            yield f"{begun.call_id}: {begun.operation_id} {begun.binding_id} {begun.process_id}".rstrip()
        case "tool_call_finished":
            yield from _finished(event)
        case "attempt_abandoned":
            given_up = event.attempt_abandoned
            yield f"step {given_up.step}, attempt {given_up.attempt}"
            yield from _text(given_up.reason)
        case "turn_finished":
            yield enum_word(TurnState, event.turn_finished.state, "TURN_STATE_")
            yield from _text(event.turn_finished.reason)
        case _:
            yield from _text(json.dumps(as_json(event)))


def _finished(event: Event) -> Iterator[str]:
    ended = event.tool_call_finished
    yield f"{ended.call_id}: {enum_word(CallState, ended.state, 'CALL_STATE_')}"
    if ended.HasField("process"):
        process = ended.process
        yield f"{process.cause} after {process.duration.ToMilliseconds()} ms"
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
            yield f"{name}: {stream.total_bytes} bytes, sha256 {stream.sha256}"
    yield from _text(ended.content)


def _text(text: str) -> Iterator[str]:
    for line in visible(text).splitlines():
        yield f"| {line}"
