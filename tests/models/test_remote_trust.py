"""Whom a model behind HTTP trusts as its server: the authorities of its file and nobody else."""

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.models.remote import failure_of, remote, step_of
from tests.support.certificates import Authority
from tests.support.model_server import PROTOCOLS, ModelServer, Step


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_authority_of_its_own_is_trusted_by_name_and_nothing_else_is(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `ca_file` its server answers, whatever the environment names; with another file or none, or under
    a name that the certificate does not have, nothing is asked.
    """
    authority, other = Authority.create(tmp_path / "own"), Authority.create(tmp_path / "other")
    pair = authority.issue("models", "127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.pem))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    async with ModelServer(tls) as server:
        server.play("go", Step(text=("ok",)))
        assert (await step_of(remote(server, protocol, "go", ca_file=authority.pem)))[0] == "ok"
        named = server.base_url(protocol, "go").replace("127.0.0.1", "localhost")
        strange = "is not trusted; if it has an authority of its own, the operator names it as the"
        for model, why in (
            (remote(server, protocol, "go", ca_file=other.pem), strange),
            (remote(server, protocol, "go"), strange),
            (
                remote(server, protocol, "go", ca_file=authority.pem, base_url=named),
                "is for another host name",
            ),
        ):
            _, failure = await failure_of(model)
            assert why in failure.public
            assert not failure.retryable
        assert server.calls("go") == 1
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_that_speaks_no_tls_is_told_as_that(protocol: str) -> None:
    """`https://` to a server without TLS is a handshake that fails, and is not tried again."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        _, failure = await failure_of(remote(ModelServer(), protocol, "go", base_url=url))
    assert "the TLS handshake with `127.0.0.1:" in failure.public
    assert not failure.retryable
