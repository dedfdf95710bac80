"""A gateway that speaks another version of the contracts is told as one, never by a traceback."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.gateway import TYRUM

UNREADABLE = b"\xff\xff\xff"


class Foreign(grpc.GenericRpcHandler):
    """Answers what is no message, or serves no method at all."""

    def __init__(self, *, knows: bool) -> None:
        self._knows = knows

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Serve everything alike."""
        if not self._knows:
            return None
        if handler_call_details.method.rpartition("/")[2].startswith("Watch"):
            return grpc.unary_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _request: bytes, _context: Any) -> bytes:
        return UNREADABLE

    async def _stream(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        yield UNREADABLE


@pytest.mark.parametrize("knows", [True, False], ids=["other messages", "other methods"])
async def test_a_gateway_of_another_version_is_told_as_one(tmp_path: Path, knows: bool) -> None:
    """Unary calls and streams: one line with both versions, exit code 1."""
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    token = directory / "operator.token"
    token.write_text("t" * 43 + "\n", encoding="ascii")
    token.chmod(0o600)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Foreign(knows=knows),))
    address = f"unix:{directory}/s"
    server.add_insecure_port(address)
    await server.start()
    announced = {"address": address, "pid": os.getpid(), "version": "99.1"}
    (directory / "gateway.json").write_text(json.dumps(announced), encoding="utf-8")
    try:
        for command in ("whoami", "approvals watch"):
            code, text = await _run(directory, command)
            assert code == 1
            assert text.startswith("error: the gateway (version 99.1) and this command line (version ")
            assert "Traceback" not in text
    finally:
        await server.stop(0)


async def _run(directory: Path, command: str) -> tuple[int | None, str]:
    arguments = [*command.split(), "--state-dir", str(directory)]
    process = await asyncio.create_subprocess_exec(
        TYRUM, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(30):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()
