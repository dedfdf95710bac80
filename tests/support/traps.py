"""Finds, in source text, what measured to go wrong with gRPC, processes and event loops in this design."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_SPAWNING = frozenset({"Popen", "run", "call", "check_call", "check_output", "create_subprocess_exec"})
_IN_THE_CHILD = frozenset({"preexec_fn", "user", "group", "extra_groups"})
_LOOPS = frozenset({"new_event_loop", "run_until_complete", "Runner"})
_LOCAL = frozenset({"local_channel_credentials", "local_server_credentials"})


@dataclass(frozen=True, slots=True)
class Trap:
    """One place where the source walks into a trap."""

    name: str
    line: int


def find(source: str, *, entry: bool = False) -> list[Trap]:
    """Find the traps in a module.

    Args:
        source: Its text.
        entry: Whether the module is where a process begins and may start the one event loop.
    """
    found = [
        Trap(name, getattr(node, "lineno", 0))
        for node in ast.walk(ast.parse(source))
        for name in _traps(node, entry=entry)
    ]
    return sorted(found, key=lambda trap: trap.line)


def _traps(node: ast.AST, *, entry: bool) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if text.startswith(("grpc.keepalive", "grpc.http2.")):
            yield "keepalive"
        case ast.Tuple(elts=[ast.Constant(value=str(text)), ast.UnaryOp(op=ast.USub())]) if (
            "message_length" in text
        ):
            yield "unlimited messages"
        case ast.keyword(arg="wait_for_ready"):
            yield "waits for a dead path"
        case ast.keyword(arg="maximum_concurrent_rpcs"):
            yield "limit on the whole server"
        case ast.Call(func=ast.Attribute(attr="peer"), args=[], keywords=[]):
            yield "gRPC's word for the peer"
        case ast.Attribute(attr=name) if name in _LOCAL:
            yield "gRPC's word for the peer"
        case ast.Attribute(attr=name) if name in _LOOPS and not entry:
            yield "second event loop"
        case ast.Attribute(value=ast.Name(id="asyncio"), attr="run") if not entry:
            yield "second event loop"
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), keywords=keywords) if (
            name in _SPAWNING and any(keyword.arg in _IN_THE_CHILD for keyword in keywords)
        ):
            yield "code between fork and exec"
        case ast.Import(names=names) if any(name.name.startswith("protovalidate") for name in names):
            yield "validation by annotations"
        case ast.ImportFrom(module=str(module)) if module.startswith("protovalidate"):
            yield "validation by annotations"
        case _:
            pass
