"""What the provider orders a supervisor to run, as both ends of their socket understand it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileOrder:
    """A file by path, and by the sha256 it must have (empty: any content)."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class RunAs:
    """User and group ids of the command; None on an order means those of the provider."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Order:
    """One checked request. Times in seconds, sizes in bytes. Holds secrets: it is never written to disk."""

    operation_id: str
    process_id: str
    spec_digest: str
    program: FileOrder
    argv: tuple[str, ...]
    env: Mapping[str, str]
    workspace: str
    device: int
    inode: int
    cwd: str
    stdin: bytes
    operands: tuple[FileOrder, ...]
    wall_time: float
    output_bytes: int
    kill_grace: float
    spool_bytes: int
    run_as: RunAs | None

    def __repr__(self) -> str:
        return f"Order({self.operation_id})"


def to_head(order: Order) -> dict[str, object]:
    """Return the JSON head of a START frame; `stdin` travels as the frame's tail."""
    return {
        "operation_id": order.operation_id,
        "process_id": order.process_id,
        "spec_digest": order.spec_digest,
        "program": [order.program.path, order.program.sha256],
        "argv": list(order.argv),
        "env": dict(order.env),
        "workspace": order.workspace,
        "device": order.device,
        "inode": order.inode,
        "cwd": order.cwd,
        "operands": [[operand.path, operand.sha256] for operand in order.operands],
        "wall_time": order.wall_time,
        "output_bytes": order.output_bytes,
        "kill_grace": order.kill_grace,
        "spool_bytes": order.spool_bytes,
        "run_as": None if order.run_as is None else [order.run_as.uid, order.run_as.gid],
    }


def from_head(head: Mapping[str, Any], stdin: bytes) -> Order:
    """Read the head of a START frame that `to_head` made."""
    values = dict(head)
    values["program"] = FileOrder(*head["program"])
    values["argv"] = tuple(head["argv"])
    values["operands"] = tuple(FileOrder(*operand) for operand in head["operands"])
    values["run_as"] = None if head["run_as"] is None else RunAs(*head["run_as"])
    return Order(stdin=stdin, **values)
