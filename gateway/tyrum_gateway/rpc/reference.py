"""Writes the reference page of error reasons from the contracts' own text, so that the two cannot differ.

`python -m tyrum_gateway.rpc.reference` prints the page kept as docs/reference/errors.md.

Invariant: every registered reason has one row, and a contract that cannot be read is an error.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from tyrum_gateway.domain.errors import TABLE

_INTRODUCTION = """\
# Error reasons

<!-- Generated: .venv/bin/python -m tyrum_gateway.rpc.reference > docs/reference/errors.md -->

Every error of a Tyrum service carries one `google.rpc.ErrorInfo`. Its `reason` is one of these and has the
same gRPC code everywhere. `domain` is the proto package of the service that answered; `metadata` repeats
every dynamic part of the message. A status without `ErrorInfo` came from the transport: the outcome of the
call is unknown unless the RPC is free of effects.

What the caller does is the rule; where RPCs differ, the error table in the comment of the RPC says more. The
exit code is that of a `tyrum` command which the gateway answers so; without one, the reason stays between
gateway and providers. Which test provokes which reason stands in the [register](../contracts/errors.md).
"""

_HEADER = """\
| reason | gRPC code | meaning | what the caller does | exit code |
|---|---|---|---|---|"""
_ERRORS = "error/v1/error.proto"
_BLOCK = re.compile(r"^  // -- (.+)$")
_COMMENT = re.compile(r"^  //\s*(.*)$")
_VALUE = re.compile(r"^  ERROR_REASON_([A-Z_]+) = \d+;$")
_CODE = re.compile(r"\s*\b([A-Z]+(?:_[A-Z]+)*)\.$")
_ROW = re.compile(r"^\s*//\s+[^|]+\|\s*[A-Z_]+\s*\|\s*(?P<reason>[A-Z_]+)\s*\|(?P<action>[^|]+)$")
_RULE = re.compile(r"[:;] ")
_MOST_ACTIONS = 3
"""More different ones than this say less than the rule of the block."""


class ContractUnreadable(Exception):
    """The text of a contract is not what this page is made from."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One row of the page."""

    name: str
    code: str
    meaning: str
    action: str
    exit_code: int | None
    """None for what no client gets."""


@dataclass(frozen=True, slots=True)
class Block:
    """Reasons that share a way of recovering."""

    title: str
    reasons: Sequence[Reason]


def blocks() -> Sequence[Block]:
    """Read the registered reasons in their order.

    Raises:
        ContractUnreadable: A line fits no form, or a reason has no code or nothing to do about it.
    """
    actions = _actions()
    exits = {row.reason: row.exit_code for row in TABLE.values()}
    found: list[tuple[str, list[Reason]]] = []
    code = ""
    for heading, comment, name in _values(_text(_contracts() / _ERRORS)):
        if heading:
            title, code = _split_code(heading)
            found.append((title, []))
        meaning, own = _split_code(comment)
        if not (found and meaning and (own or code)):
            raise ContractUnreadable(f"{_ERRORS}: `{name}` has no block, no meaning or no code")
        title, reasons = found[-1]
        known = actions.get(name, ())
        _, rule = _split_rule(title)
        action = " · ".join(known) if known and (len(known) <= _MOST_ACTIONS or not rule) else rule
        if not action:
            raise ContractUnreadable(f"{_ERRORS}: nothing says what the caller does about `{name}`")
        reasons.append(Reason(name, own or code, meaning, action, exits.get(name)))
    return [Block(title, tuple(reasons)) for title, reasons in found]


def render() -> str:
    """Return the whole page."""
    lines = [_INTRODUCTION]
    for block in blocks():
        heading, rule = _split_rule(block.title)
        lines += [f"## {heading}\n"]
        lines += [f"{rule[0].upper()}{rule[1:]}.\n"] if rule else []
        lines += [
            "| reason | gRPC code | meaning | what the caller does | exit code |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| `{row.name}` | {row.code} | {row.meaning} | {row.action} |"
            f" {'' if row.exit_code is None else row.exit_code} |"
            for row in block.reasons
        ]
        lines += [""]
    return "\n".join(lines)


def _values(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (heading of the block that begins here, comment, name) of every value that is sent."""
    body = text.partition("enum ErrorReason {\n")[2].partition("\n}")[0]
    heading: list[str] = []
    comment: list[str] = []
    in_heading = False
    for line in body.splitlines():
        if not line:
            in_heading = False
        elif block := _BLOCK.match(line):
            heading, in_heading = [block[1]], True
        elif remark := _COMMENT.match(line):
            (heading if in_heading else comment).append(remark[1])
        elif value := _VALUE.match(line):
            if value[1] != "UNSPECIFIED":
                yield " ".join(heading), " ".join(comment), value[1]
            heading, comment = [], []
        else:
            raise ContractUnreadable(f"{_ERRORS}: `{line.strip()}`")


def _split_rule(title: str) -> tuple[str, str]:
    """Split a block's heading from the rule for its reasons; without a rule the reasons have their own."""
    heading, _, rest = title.rstrip(".").partition(". ")
    parts = _RULE.split(heading, maxsplit=1)
    if rest or len(parts) == 1:
        return heading, ""
    return parts[0], parts[1]


def _split_code(comment: str) -> tuple[str, str]:
    """Split what a comment says from the gRPC code that ends it; the code is empty when none does."""
    found = _CODE.search(comment)
    return (comment[: found.start()], found[1]) if found else (comment, "")


def _actions() -> dict[str, tuple[str, ...]]:
    """Collect what the error tables of all RPCs tell the caller to do, per reason."""
    actions: dict[str, dict[str, None]] = {}
    for contract in sorted(_protos(_contracts()), key=str):
        for line in _text(contract).splitlines():
            if row := _ROW.match(line):
                actions.setdefault(row["reason"], {})[row["action"].strip()] = None
    return {reason: tuple(known) for reason, known in actions.items()}


def _contracts() -> Traversable:
    return resources.files("tyrum")


def _protos(directory: Traversable) -> Iterator[Traversable]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _protos(entry)
        elif entry.name.endswith(".proto"):
            yield entry


def _text(file: Traversable) -> str:
    return file.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.stdout.write(render())
