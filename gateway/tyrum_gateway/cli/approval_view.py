"""How an approval is drawn for the human who decides on it.

Invariants: every row fits the terminal, and what a model wrote is behind a word or mark of ours, its blanks
counted; program and arguments stand alone, whole, right above the prompt, so that nothing can be pushed
between the command and the answer.
"""

import json
import shlex
from collections.abc import Iterator

from tyrum.approval.v1.approval_pb2 import Approval
from tyrum_gateway.cli.approval_client import outcome_word, requester, resolver
from tyrum_gateway.cli.output import fields, heading, moment, row, say
from tyrum_gateway.cli.prose import called
from tyrum_gateway.cli.terminal import drawn, hung, visible_line

_LABEL = 13
"""Cells of the word before a line's value."""
_BLOCKS = ("  | ", "  $ ")
"""What stands before the lines of a text in a summary."""
_ENDING = "  ("
"""Stands between a value and what the gateway says of it."""
_ABOVE_PROMPT = frozenset({"program", "arguments", "given as", "shell text"})
_EVERY_TIME = frozenset({"limits", "environment"})
"""The same at every call, and read with the rest of it by `approvals show`."""


def show(approval: Approval, *, subject: bool = False) -> None:
    """Print all of an approval; with `subject` also the canonical JSON that the digest is taken over."""
    heading(f"Approval {approval.approval_id}")
    _print(_rows(approval.summary, frozenset()))
    fields(
        [
            ("state", outcome_word(approval)),
            ("tool", approval.tool),
            ("asked by rule", approval.rule_id),
            ("agent", approval.agent),
            ("for", requester(approval)),
            ("conversation", approval.conversation_id),
            ("expires", moment(approval.expires_at)),
            ("resolved by", resolver(approval)),
            ("resolved", moment(approval.resolved_at)),
            ("reason", approval.reason),
            ("permitted", f"for good as {approval.override_id}" if approval.override_id else ""),
            ("digest", approval.digest),
            ("you may", _yours(approval)),
        ]
    )
    if subject:
        heading("Subject")
        say(_indented(approval.subject_json))


def ask(approval: Approval) -> None:
    """Print what a human at a prompt decides on; the command comes last, alone."""
    heading(f"Approval {approval.approval_id}")
    said = f"for {requester(approval)}, until {moment(approval.expires_at)}, by rule {approval.rule_id}"
    _print([_row("asked", said), *_rows(approval.summary, _ABOVE_PROMPT | _EVERY_TIME)])
    _print([_row("more", f"{called()} approvals show {approval.approval_id}")])
    command(approval)


def command(approval: Approval) -> None:
    """Print program and arguments, or the shell text, alone and whole; highlighted on a terminal."""
    program, rows = _command(approval)
    print()
    if program:
        print(hung("program  ", visible_line(program), 9))
    row("\n".join(rows), "bold")


def _command(approval: Approval) -> tuple[str, list[str]]:
    try:
        subject = json.loads(approval.subject_json)
        program, argv = str(subject["program"]["path"]), [str(word) for word in subject["argv"]]
        if subject["shell"]:
            return f"{program}, which runs this text:", drawn(argv[-1])
    except (ValueError, KeyError, TypeError, IndexError):
        return "", _rows(approval.summary, frozenset())
    return program, [hung("command  ", visible_line(shlex.join(argv)), 9)]


def _rows(summary: str, without: frozenset[str]) -> list[str]:
    return list(_drawn(summary.split("\n"), without))


def _drawn(lines: list[str], without: frozenset[str]) -> Iterator[str]:
    """Draw the lines of a summary; a text goes with the label above it."""
    label = ""
    for line in lines:
        if line.startswith(_BLOCKS):
            if label not in without:
                yield hung(line[:4], visible_line(line[4:]), 4)
            continue
        label = line[:_LABEL].strip()
        if label in without:
            continue
        if len(line) <= _LABEL:
            yield visible_line(line)
            continue
        value, separator, ending = line[_LABEL:].rpartition(_ENDING)
        yield _row(label, f"{value} ({ending}" if separator else line[_LABEL:])


def _row(label: str, value: str) -> str:
    return hung(f"{label:<{_LABEL}}", visible_line(value), _LABEL)


def _print(rows: list[str]) -> None:
    if rows:
        print("\n".join(rows), flush=True)


def _yours(approval: Approval) -> str:
    """List the answers that the caller may give; empty when it is resolved."""
    if approval.outcome:
        return ""
    answers = {
        "approve": approval.approve_barred,
        "approve --always": approval.always_barred,
        "deny": approval.deny_barred,
    }
    return ", ".join(answer for answer, why in answers.items() if not why) or "only read it"


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2)
    except ValueError:
        return text
