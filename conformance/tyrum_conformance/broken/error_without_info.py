"""Fails every Configure with a bare INTERNAL, without ErrorInfo and with a path in its text."""

from typing import Any

import grpc
import grpc.aio

from tyrum.provider.v1 import control_pb2
from tyrum_conformance.broken._base import GoodProvider
from tyrum_provider_kit.control import ControlService
from tyrum_provider_kit.serve import run_with


class Control(ControlService):
    """Goes around the one error shape."""

    async def Configure(  # noqa: N802
        self, request: control_pb2.ConfigureRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> control_pb2.ConfigureResponse:
        """Fail without details."""
        await context.abort(grpc.StatusCode.INTERNAL, "KeyError in /home/author/provider.py\x1b[31m")


def main() -> int:
    """Serve."""
    return run_with(GoodProvider(), Control)
