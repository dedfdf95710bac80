"""A scripted model server: one neutral script, spoken in the protocol of whoever asks."""

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
