"""A scripted model server: one neutral script, spoken in the protocol of whoever asks.

    async with ModelServer() as server:
        with gateway.asking(tmp_path, server, "openai", "hello") as gateway:
            server.play("hello", Step(calls=(Call("process_run", "{…}"),)), Step(text=("Done.",)))
            …
            assert server.calls("hello") == 2

Leaving the server raises what was wrong with any request: a step's expectation, or what a strict server of
the protocol would refuse. `requests` has them all, without the key.
"""

from tests.support.model_server.request import Request
from tests.support.model_server.script import (
    Call,
    Cut,
    Ending,
    Expect,
    Fault,
    Garbage,
    Goodbye,
    Midway,
    Quirk,
    Refuse,
    Step,
    Usage,
)
from tests.support.model_server.server import KEY, PROTOCOLS, ModelServer

__all__ = [
    "KEY",
    "PROTOCOLS",
    "Call",
    "Cut",
    "Ending",
    "Expect",
    "Fault",
    "Garbage",
    "Goodbye",
    "Midway",
    "ModelServer",
    "Quirk",
    "Refuse",
    "Request",
    "Step",
    "Usage",
]
