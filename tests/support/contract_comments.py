"""Reads what the contracts' comments promise: error tables, field rules, idempotency and deadlines."""

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[2] / "proto"
ERRORS = "tyrum/error/v1/error.proto"
ISOLATION = "tyrum/isolation/v1/isolation.proto"
CODES = frozenset(
    {
        "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
        "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
        "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
    }
)  # fmt: skip
HEADER = ("condition", "code", "reason", "what the caller does")

_PREFIX = "ERROR_REASON_"
_REASON = re.compile(r"[A-Z][A-Z0-9_]+")
_CODE_SENTENCE = re.compile(r"\b([A-Z_]+)\.\s*$")
_IDEMPOTENCY = re.compile(r"\b(Idempotent|Free of effects)\b")

# Numbers of the descriptor fields that lead to an element, as SourceCodeInfo.Location.path holds them.
_MESSAGE, _ENUM, _SERVICE, _METHOD, _FIELD, _ONEOF, _ENUM_VALUE = 4, 5, 6, 2, 2, 8, 2


class ContractError(Exception):
    """The contracts do not compile."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row of an error table."""

    service: str
    place: str
    columns: tuple[str, ...]

    @property
    def code(self) -> str:
        """The gRPC code; empty when the row has no such column."""
        return self.columns[1] if len(self.columns) > 1 else ""

    @property
    def reason(self) -> str:
        """The reason; empty when the row has no such column."""
        return self.columns[2] if len(self.columns) > 2 else ""


@dataclass(frozen=True, slots=True)
class Contracts:
    """All contracts with their comments."""

    files: tuple[descriptor_pb2.FileDescriptorProto, ...]
    comments: dict[tuple[str, tuple[int, ...]], str]
    detached: dict[tuple[str, tuple[int, ...]], str]

    def comment(self, file: str, *path: int) -> str:
        """The comment before an element; empty without one."""
        return self.comments.get((file, path), "")


def load(source: Path = PROTO) -> Contracts:
    """Compile the contracts below `source`.

    Raises:
        ContractError: protoc refused a contract.
    """
    protos = sorted(path.relative_to(source).as_posix() for path in (source / "tyrum").rglob("*.proto"))
    with tempfile.TemporaryDirectory(prefix="tyrum-comments-") as directory:
        image = Path(directory) / "image.binpb"
        status = protoc.main(
            [
                "protoc",
                f"--proto_path={source}",
                f"--proto_path={resources.files('grpc_tools') / '_proto'}",
                f"--descriptor_set_out={image}",
                "--include_source_info",
                *protos,
            ]
        )
        if status != 0:
            raise ContractError(f"protoc failed with status `{status}`")
        files = descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()).file
    locations = [(file.name, location) for file in files for location in file.source_code_info.location]
    return Contracts(
        files=tuple(files),
        comments={(name, tuple(at.path)): at.leading_comments for name, at in locations},
        detached={(name, tuple(at.path)): "\n".join(at.leading_detached_comments) for name, at in locations},
    )


def registered_reasons(contracts: Contracts) -> dict[str, str]:
    """Every registered reason with the gRPC code that its comment, or the block it stands in, states.

    The code is empty where neither states one.
    """
    file = next(file for file in contracts.files if file.name == ERRORS)
    reasons: dict[str, str] = {}
    block_code = ""
    for index, value in enumerate(file.enum_type[0].value):
        path = (_ENUM, 0, _ENUM_VALUE, index)
        if block := contracts.detached.get((ERRORS, path)):
            block_code = _stated_code(block)
        if value.number:
            reasons[value.name.removeprefix(_PREFIX)] = (
                _stated_code(contracts.comment(ERRORS, *path)) or block_code
            )
    return reasons


def _stated_code(comment: str) -> str:
    found = _CODE_SENTENCE.search(comment)
    return found[1] if found and found[1] in CODES else ""


def claim_registry(contracts: Contracts) -> dict[str, str]:
    """The claims that the comment of `Claim.name` lists with their meanings, in its order."""
    file = next(file for file in contracts.files if file.name == ISOLATION)
    message = next(index for index, item in enumerate(file.message_type) if item.name == "Claim")
    comment = re.sub(r"\n {5,}", " ", contracts.comment(ISOLATION, _MESSAGE, message, _FIELD, 0))
    return dict(re.findall(r"^ {3}([a-z]+\.[a-z_]+): (.+)$", comment, re.MULTILINE))


def error_rows(contracts: Contracts) -> list[ErrorRow]:
    """Every row of every error table, headers left out."""
    return [
        ErrorRow(service, place, columns)
        for service, place, comment in _documented_calls(contracts)
        for columns in _table(comment)
        if columns != HEADER
    ]


def _documented_calls(contracts: Contracts) -> Iterator[tuple[str, str, str]]:
    for file in contracts.files:
        for number, service in enumerate(file.service):
            name = f"{file.package}.{service.name}"
            yield name, name, contracts.comment(file.name, _SERVICE, number)
            for index, method in enumerate(service.method):
                comment = contracts.comment(file.name, _SERVICE, number, _METHOD, index)
                yield name, f"{name}.{method.name}", comment


def _table(comment: str) -> Iterator[tuple[str, ...]]:
    for line in comment.splitlines():
        if "|" in line:
            yield tuple(column.strip() for column in line.split("|"))


def services(contracts: Contracts) -> set[str]:
    """The full names of all services."""
    return {service for service, _, _ in _documented_calls(contracts)}


def table_problems(contracts: Contracts, planned: frozenset[str] = frozenset()) -> list[str]:
    """Find malformed rows, unregistered reasons, reasons in no table, and codes that are not the reason's.

    `planned` are reasons whose service is not there yet: they need no table.
    """
    reasons = registered_reasons(contracts)
    problems = [f"{name}: no gRPC code is stated" for name, code in reasons.items() if not code]
    rows = error_rows(contracts)
    for row in rows:
        if len(row.columns) != len(HEADER) or not all(row.columns):
            problems.append(f"{row.place}: not four columns: {' | '.join(row.columns)}")
        elif row.code not in CODES or not _REASON.fullmatch(row.reason):
            problems.append(f"{row.place}: `{row.code}` or `{row.reason}` is malformed")
        elif row.reason not in reasons:
            problems.append(f"{row.place}: reason `{row.reason}` is not registered")
        elif row.code != reasons[row.reason]:
            problems.append(
                f"{row.place}: `{row.reason}` is {reasons[row.reason]}, the table says {row.code}"
            )
    used = planned | {row.reason for row in rows}
    problems += [f"{name}: in no error table" for name in reasons if name not in used]
    for service, place, comment in _documented_calls(contracts):
        if service == place and HEADER not in list(_table(comment)):
            problems.append(f"{place}: no table of common errors")
    return problems


def call_problems(contracts: Contracts) -> list[str]:
    """Find RPCs that do not state their idempotency or their deadline."""
    problems = []
    for service, place, comment in _documented_calls(contracts):
        if service == place:
            continue
        text = " ".join(comment.split())
        if not _IDEMPOTENCY.search(text):
            problems.append(f"{place}: neither `Idempotent` nor `Free of effects`")
        if "Deadline" not in text:
            problems.append(f"{place}: no deadline")
    return problems


def field_problems(contracts: Contracts) -> list[str]:
    """Find fields of requests, direct or nested, that are neither REQUIRED nor OPTIONAL.

    A `bool` says what true means, and a member of a oneof is ruled by the oneof. A message that only ever
    stands in a response is free.
    """
    messages = {
        f".{file.package}.{message.name}": (file.name, index, message)
        for file in contracts.files
        for index, message in enumerate(file.message_type)
    }
    pending = [name for name in messages if name.endswith("Request")]
    seen: set[str] = set()
    problems = []
    while pending:
        name = pending.pop()
        if name in seen or name not in messages:
            continue
        seen.add(name)
        file, index, message = messages[name]
        for number, item in enumerate(message.field):
            pending += [item.type_name] if item.type_name else []
            comment = contracts.comment(file, _MESSAGE, index, _FIELD, number)
            free = item.type == item.TYPE_BOOL or (item.HasField("oneof_index") and not item.proto3_optional)
            if not free and not re.search(r"\b(REQUIRED|OPTIONAL)\b", comment):
                problems.append(f"{name[1:]}.{item.name}: neither REQUIRED nor OPTIONAL")
    return sorted(problems)
