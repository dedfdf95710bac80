"""Reading the run registry: a view over turns, calls, bindings, approvals and evidence; no table of its own.

Invariant: every statement finds its rows by an index and reads one turn's rows, or one page of turns.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Select, bindparam, case, func, literal_column, select
from sqlalchemy.sql.elements import BindParameter

from tyrum_gateway.domain.approval import Outcome
from tyrum_gateway.domain.commit import Origin
from tyrum_gateway.domain.errors import NotFound
from tyrum_gateway.domain.ids import (
    ApprovalId,
    BindingId,
    CallId,
    ConversationId,
    EntityId,
    OperationId,
    OverrideId,
    PrincipalId,
    ProcessId,
    TurnId,
)
from tyrum_gateway.domain.run import (
    LONGEST_TARGET,
    LONGEST_TOOL,
    MOST_CALLS,
    TARGETS_BYTES,
    Run,
    RunApproval,
    RunBinding,
    RunCall,
    RunEntry,
    RunLog,
)
from tyrum_gateway.domain.states import CallState, TurnState
from tyrum_gateway.storage.reads import Reads
from tyrum_gateway.storage.statements import compiled
from tyrum_gateway.storage.tables import approvals, bindings, calls, events, evidence, principals, turns
from tyrum_gateway.storage.times import from_microseconds

Id = TypeVar("Id", bound=EntityId)

_size: BindParameter[int] = bindparam("size")
_entries: Select[tuple[object, ...]] = select(turns.c.turn_id, turns.c.state, turns.c.created_at)
_newest = _entries.order_by(turns.c.turn_id.desc()).limit(_size)
_of = (
    _entries.where(turns.c.conversation_id == bindparam("conversation"))
    .order_by(turns.c.number.desc())
    .limit(_size)
)
_older = turns.c.turn_id < bindparam("before")
_earlier = turns.c.number < (
    select(turns.c.number).where(turns.c.turn_id == bindparam("before")).scalar_subquery()
)
_own = turns.c.principal_id == bindparam("principal")

NEWEST_RUNS = compiled(_newest)
RUNS_BEFORE = compiled(_newest.where(_older))
NEWEST_OWN_RUNS = compiled(_newest.where(_own))
OWN_RUNS_BEFORE = compiled(_newest.where(_own, _older))
NEWEST_RUNS_OF = compiled(_of)
RUNS_OF_BEFORE = compiled(_of.where(_earlier))
NEWEST_OWN_RUNS_OF = compiled(_of.where(_own))
OWN_RUNS_OF_BEFORE = compiled(_of.where(_own, _earlier))

_PAGES = {
    # By whether of one conversation, of one principal, and behind another page.
    (False, False, False): NEWEST_RUNS,
    (False, False, True): RUNS_BEFORE,
    (False, True, False): NEWEST_OWN_RUNS,
    (False, True, True): OWN_RUNS_BEFORE,
    (True, False, False): NEWEST_RUNS_OF,
    (True, False, True): RUNS_OF_BEFORE,
    (True, True, False): NEWEST_OWN_RUNS_OF,
    (True, True, True): OWN_RUNS_OF_BEFORE,
}

RUN_TURN = compiled(
    select(turns, principals.c.name.label("principal"))
    .select_from(turns.outerjoin(principals, principals.c.principal_id == turns.c.principal_id))
    .where(turns.c.turn_id == bindparam("turn"))
)
RUN_CALLS = compiled(
    select(
        calls.c.call_id,
        calls.c.step,
        func.substr(calls.c.tool, literal_column("1"), literal_column(f"{LONGEST_TOOL + 1}")).label("tool"),
        calls.c.state,
        calls.c.rule_id,
        calls.c.operation_id,
        calls.c.process_id,
        calls.c.binding_id,
        bindings.c.provider,
        bindings.c.profile,
        bindings.c.artifact_digest,
        bindings.c.instance_id,
        evidence.c.stdout_bytes,
        evidence.c.stderr_bytes,
    )
    .select_from(
        calls.outerjoin(bindings, bindings.c.binding_id == calls.c.binding_id).outerjoin(
            evidence, evidence.c.call_id == calls.c.call_id
        )
    )
    .where(calls.c.turn_id == bindparam("turn"))
    .order_by(calls.c.turn_id, calls.c.step, calls.c.position)
    .limit(literal_column(f"{MOST_CALLS}"))
)
_conversation = select(turns.c.conversation_id).where(turns.c.turn_id == bindparam("turn")).scalar_subquery()
_number = select(turns.c.number).where(turns.c.turn_id == bindparam("turn")).scalar_subquery()
_of_turn = (events.c.conversation_id == _conversation) & (events.c.turn_number == _number)
# Asked through the events, because a call that was asked about again knows its last question only.
RUN_APPROVALS = compiled(
    select(approvals)
    .select_from(
        events.join(
            approvals,
            approvals.c.approval_id == func.json_extract(events.c.payload, literal_column("'$.approval_id'")),
        )
    )
    .where(_of_turn, events.c.kind == literal_column("'approval_requested'"))
    .order_by(events.c.sequence)
    .limit(literal_column(f"{MOST_CALLS}"))
)
_payload = events.c.payload
_target = func.json_extract(_payload, literal_column("'$.target'"))
RUN_TARGETS = compiled(
    select(
        func.json_extract(_payload, literal_column("'$.call_id'")).label("call_id"),
        case(
            (func.length(_target) <= literal_column(f"{LONGEST_TARGET}"), _target),
            else_=literal_column("''"),
        ).label("target"),
    )
    .select_from(events)
    .where(_of_turn, events.c.kind == literal_column("'tool_call_decided'"))
    .order_by(events.c.sequence)
)
RUN_ABANDONED = compiled(
    select(func.count().label("abandoned"))
    .select_from(events)
    .where(_of_turn, events.c.kind == literal_column("'attempt_abandoned'"))
)


class SqliteRunLog(RunLog):
    """Implements `RunLog`."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    async def entries(
        self,
        before: TurnId | None,
        limit: int,
        conversation_id: ConversationId | None,
        principal_id: PrincipalId | None,
    ) -> Sequence[RunEntry]:
        """See `RunLog.entries`."""
        statement = _PAGES[conversation_id is not None, principal_id is not None, before is not None]
        parameters = {
            "before": before,
            "size": limit,
            "conversation": conversation_id,
            "principal": principal_id,
        }
        (found,) = await self._reads.fetch((statement, parameters))
        return [
            RunEntry(
                TurnId(row["turn_id"]),
                TurnState(row["state"]),
                from_microseconds(row["created_at"]),
            )
            for row in found
        ]

    async def run(self, turn_id: TurnId) -> Run:
        """See `RunLog.run`."""
        parameters = {"turn": turn_id}
        found, called, asked, decided, given_up = await self._reads.fetch(
            (RUN_TURN, parameters),
            (RUN_CALLS, parameters),
            (RUN_APPROVALS, parameters),
            (RUN_TARGETS, parameters),
            (RUN_ABANDONED, parameters),
        )
        if not found:
            raise NotFound("turn", turn_id)
        row = found[0]
        targets = _shown({item["call_id"]: item["target"] or "" for item in decided})
        return Run(
            turn_id=turn_id,
            conversation_id=ConversationId(row["conversation_id"]),
            number=row["number"],
            principal_id=PrincipalId(row["principal_id"]),
            principal=row["principal"] or "",
            origin=Origin(row["agent"], row["model"], row["backend"], row["session"], row["host"]),
            state=TurnState(row["state"]),
            reason=row["reason"],
            created_at=from_microseconds(row["created_at"]),
            ended_at=None if row["ended_at"] is None else from_microseconds(row["ended_at"]),
            steps=row["step"],
            abandoned=given_up[0]["abandoned"],
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            usage_complete=bool(row["usage_complete"]),
            answered_by=tuple(row["answered_by"].split()),
            calls=tuple(_call(item, targets.get(item["call_id"], "")) for item in called),
            approvals=tuple(_approval(item) for item in asked),
        )


def _shown(targets: Mapping[str, str]) -> Mapping[str, str]:
    """Leave out targets that are too long, and those behind which too much was shown."""
    shown, left = {}, TARGETS_BYTES
    for call_id, target in targets.items():
        size = len(target.encode(errors="replace"))
        if size <= min(LONGEST_TARGET, left):
            shown[call_id] = target
            left -= size
    return shown


def _call(row: sqlite3.Row, target: str) -> RunCall:
    tool = row["tool"]
    binding = None
    if row["binding_id"] is not None:
        binding = RunBinding(
            BindingId(row["binding_id"]),
            row["provider"] or "",
            row["profile"] or "",
            row["artifact_digest"] or "",
            row["instance_id"] or "",
        )
    return RunCall(
        call_id=CallId(row["call_id"]),
        step=row["step"],
        tool=tool if len(tool) <= LONGEST_TOOL else f"{tool[:LONGEST_TOOL]}…",
        state=CallState(row["state"]),
        rule_id=row["rule_id"],
        operation_id=_optional(OperationId, row["operation_id"]),
        process_id=_optional(ProcessId, row["process_id"]),
        binding=binding,
        output_bytes=(row["stdout_bytes"] or 0) + (row["stderr_bytes"] or 0),
        target=target,
    )


def _approval(row: sqlite3.Row) -> RunApproval:
    resolved_at = row["resolved_at"]
    return RunApproval(
        approval_id=ApprovalId(row["approval_id"]),
        call_id=CallId(row["call_id"]),
        asked_at=from_microseconds(row["created_at"]),
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        resolved_at=None if resolved_at is None else from_microseconds(resolved_at),
        resolved_by=row["resolved_by"],
        method=row["method"],
        origin=row["resolved_from"],
        override_id=_optional(OverrideId, row["override_id"]),
    )


def _optional(kind: type[Id], text: str | None) -> Id | None:
    return None if text is None else kind(text)
