"""What a model's server says when it is asked for its list of models, which costs nothing."""

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.models.remote import endpoint
from tests.support.certificates import Authority
from tests.support.model_server import KEY, PROTOCOLS, ModelServer
from tyrum_gateway.models.probe import Probed, probe

both = pytest.mark.parametrize("protocol", PROTOCOLS)


async def probed(protocol: str, base_url: str, key: str = KEY, ca_file: Path | None = None) -> Probed:
    """Ask."""
    asked = endpoint(base_url, key=key, ca_file=ca_file)
    return await probe(asked, "anthropic" if protocol == "anthropic" else "openai")


async def saying(status: str, body: bytes) -> Probed:
    """Ask a server that gives this answer."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as listening:
        return await probed("openai", f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")


@both
async def test_a_server_that_answers(server: ModelServer, protocol: str) -> None:
    """With its key it lists its models, and no step is asked for; another key is refused by its name."""
    url = server.base_url(protocol, "go")
    assert (await probed(protocol, url)).result == "ok"
    refused = await probed(protocol, url, key="sk-other")
    assert refused.result == "fail"
    assert "refused the key in the secret `MODEL_KEY` (HTTP 401)" in refused.detail
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "part"),
    [("http://127.0.0.1:9", "refuses connections"), ("http://name.invalid/v1", "cannot be resolved (DNS)")],
)
async def test_a_server_that_is_not_there(url: str, part: str) -> None:
    """The address and what failed are told."""
    told = await probed("openai", url)
    assert told.result == "fail"
    assert part in told.detail


async def test_a_server_of_another_name_or_authority(tmp_path: Path) -> None:
    """A certificate for another host name and one that is not trusted are told apart."""
    authority = Authority.create(tmp_path)
    pair = authority.issue("models", "127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    async with ModelServer(tls) as server:
        url = server.base_url("openai", "go")
        assert (await probed("openai", url, ca_file=authority.pem)).result == "ok"
        assert "is not trusted" in (await probed("openai", url)).detail
        named = url.replace("127.0.0.1", "localhost")
        assert "for another host name" in (await probed("openai", named, ca_file=authority.pem)).detail


async def test_answers_that_leave_it_open() -> None:
    """404, what is no JSON, and a list without the model are warnings: a server need not list what it
    serves.
    """
    missing = await saying("404 Not Found", b'{"error": "no such route"}')
    page = await saying("200 OK", b"<html>login " + KEY.encode())
    other = await saying("200 OK", b'{"data": [{"id": "another"}]}')
    assert [item.result for item in (missing, page, other)] == ["warn"] * 3
    assert "HTTP 404; `base_url` is" in missing.detail
    assert missing.detail.endswith("It says: no such route")
    assert page.detail.endswith("is answered by what is no JSON: <html>login ***")
    assert "`made-up-1` is not among the 1 models that it lists" in other.detail
    assert (await saying("500 Oops", b"boom")).result == "fail"
