"""A model behind a forward proxy: the same request to the same server, and the same guards."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from tests.models.remote import LOGIN, failure_of, remote, step_of
from tests.support.certificates import Authority
from tests.support.forward_proxy import ForwardProxy, answer
from tests.support.model_server import (
    KEY,
    PROTOCOLS,
    Call,
    Cut,
    Expect,
    ModelServer,
    Refuse,
    Request,
    Step,
)
from tyrum_gateway.models import forward_proxy
from tyrum_gateway.models.endpoint import Proxy
from tyrum_gateway.models.forward_proxy import forward
from tyrum_gateway.models.guarded_http import GuardedTransport, trust

both = pytest.mark.parametrize("protocol", PROTOCOLS)
SHOWN = "tyrum:canary-p:ass-7d"
LISTING = Call("process_run", '{"argv": ["ls"]}')
TOO_MANY = (LISTING,) * 65


@dataclass(frozen=True, slots=True)
class Certified:
    """An authority, and the TLS of a server that it vouches for."""

    authority: Authority
    tls: ssl.SSLContext


def certified(directory: Path) -> Certified:
    """Make both."""
    authority = Authority.create(directory)
    pair = authority.issue("models", "127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    return Certified(authority, tls)


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Expect:
    """An expectation that lets every limit pass which still runs when the server has the request."""
    loop = asyncio.get_running_loop()
    clock, hours = loop.time, 3600.0

    def jump(_: Request) -> None:
        monkeypatch.setattr(loop, "time", lambda: clock() + hours)

    return Expect(check=jump)


def lines(proxy: ForwardProxy) -> Sequence[str]:
    """What the proxy was asked for."""
    return [asked.line for asked in proxy.asked]


@both
async def test_a_server_with_tls_is_reached_by_a_tunnel(protocol: str, later: Expect, tmp_path: Path) -> None:
    """The proxy sees where to and its login; the server the request; each nothing else, and `ca_file` vouches
    for the server alone. The model may think longer than a tunnel may take.
    """
    made, other = certified(tmp_path / "own"), Authority.create(tmp_path / "other")
    async with ModelServer(made.tls) as server, ForwardProxy(login=SHOWN) as proxy:
        server.play("go", Step(text=("ok",), calls=(LISTING,), expect=later))
        way = remote(server, protocol, "go", ca_file=made.authority.pem, proxy=proxy.url, login=SHOWN)
        text, end = await step_of(way)
        assert (text, len(end.calls)) == ("ok", 1)
        target = httpx2.URL(server.base_url(protocol, "go")).netloc.decode()
        assert lines(proxy) == [f"CONNECT {target}"]
        assert set(proxy.asked[0].headers) == {"host", "accept", "proxy-authorization"}
        (request,) = server.requests
        assert "proxy-authorization" not in request.headers
        untrusted = remote(server, protocol, "go", ca_file=other.pem, proxy=proxy.url, login=SHOWN)
        _, failure = await failure_of(untrusted)
        assert "cannot be reached: the certificate of `127.0.0.1:" in failure.public
        assert not failure.retryable
        assert server.calls("go") == 1


@both
async def test_a_server_without_tls_is_asked_for_in_absolute_form(
    server: ModelServer, protocol: str, later: Expect
) -> None:
    """Without TLS the proxy takes the request itself and keeps its login."""
    server.play("go", Step(text=("ok",), expect=later))
    async with ForwardProxy(login=SHOWN) as proxy:
        text, _ = await step_of(remote(server, protocol, "go", proxy=proxy.url, login=SHOWN))
    assert text == "ok"
    (asked,) = lines(proxy)
    assert asked.startswith(f"POST {server.base_url(protocol, 'go')}/")
    (request,) = server.requests
    assert set(request.headers) - {"anthropic-version"} == {
        "host", "content-type", "accept", "accept-encoding", "user-agent", "content-length",
    }  # fmt: skip


@pytest.mark.parametrize("inner", [True, False], ids=["tunnel", "absolute"])
async def test_a_proxy_with_tls_is_asked_within_it(inner: bool, tmp_path: Path) -> None:
    """A trusted proxy with a certificate leads to both kinds of servers, each trusted on its own."""
    outer, made = certified(tmp_path / "proxy"), certified(tmp_path / "server")
    async with ModelServer(made.tls if inner else None) as server, ForwardProxy(tls=outer.tls) as proxy:
        base_url = server.base_url("openai", "go")
        transport = GuardedTransport(
            base_url=base_url,
            key=KEY,
            agent="tyrum/test",
            trust=trust(made.authority.pem),
            proxy=forward(Proxy(proxy.url), None, lambda: trust(outer.authority.pem)),
        )
        server.play("go", Step(fault=Refuse(418)))
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as http:
            asked = [{"role": "user", "content": "x"}]
            body = {"messages": asked, "stream": True, "stream_options": {"include_usage": True}}
            assert (await http.post(f"{base_url}/chat/completions", json=body)).status_code == 418
    assert len(proxy.asked) == 1


@both
async def test_a_proxy_that_the_system_does_not_trust_is_shown_nothing(
    server: ModelServer, protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither `ca_file` nor the environment vouches for a proxy: it is not asked, and sees no login."""
    made = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.authority.pem))
    async with ForwardProxy(tls=made.tls) as proxy:
        for url in (proxy.url, proxy.url.replace("https", "HTTPS")):
            way = remote(server, protocol, "go", ca_file=made.authority.pem, proxy=url, login=SHOWN)
            _, failure = await failure_of(way)
            assert f"the certificate of the proxy `{proxy.address}` of the model `main` is" in failure.public
            assert not failure.retryable
    assert proxy.asked == []


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a proxy refuses, and what is said of it."""

    by: ForwardProxy
    part: str
    retryable: bool
    login: str | None = SHOWN


REFUSALS = {
    "other login": Refusal(ForwardProxy(login="a:b"), f"refused the login in the secret `{LOGIN}`", False),
    "no login": Refusal(ForwardProxy(login="a:b"), "names as the model's `proxy_login`", False, None),
    "forbidden": Refusal(ForwardProxy(refuse=answer(403)), "through to the server (HTTP 403)", False),
    "elsewhere": Refusal(ForwardProxy(refuse=answer(302, "location: http://x/")), "(HTTP 302)", False),
    "no server": Refusal(ForwardProxy(refuse=answer(502)), "did not reach the server (HTTP 502)", True),
    "full": Refusal(ForwardProxy(refuse=answer(503)), "did not reach the server (HTTP 503)", True),
    "no proxy": Refusal(ForwardProxy(refuse=b"SSH-2.0-CANARY\r\n\r\n"), "cannot be reached", True),
    "closed": Refusal(ForwardProxy(refuse=b"HTTP/1.1 200 O"), "cannot be reached", True),
    "endless": Refusal(
        ForwardProxy(refuse=b"HTTP/1.1 200 O\r\na: " + b"x" * 2**20), "cannot be reached", True
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
@both
async def test_a_proxy_that_does_not_lead_to_the_server_is_named(protocol: str, name: str) -> None:
    """The message names the proxy and what to do, never a word of the proxy or of its login."""
    refusal = REFUSALS[name]
    async with refusal.by as proxy, ModelServer() as server:
        tunnelled = "https://127.0.0.1:9/v1"
        way = remote(server, protocol, "go", base_url=tunnelled, proxy=proxy.url, login=refusal.login)
        _, failure = await failure_of(way)
    assert f"the proxy `{proxy.address}` of the model `main`" in failure.public
    assert refusal.part in failure.public
    assert failure.retryable is refusal.retryable
    told = f"{failure!r} {failure.public} {failure.context} {failure.__cause__!r} {failure.__context__!r}"
    assert "CANARY" not in failure.public
    assert "canary" not in told


@both
async def test_a_login_that_is_asked_for_in_absolute_form_is_told_as_such(
    server: ModelServer, protocol: str
) -> None:
    """407 is the proxy's also where it hands the server's answers on; the rest may be either's."""
    async with ForwardProxy(login="a:b") as proxy:
        _, failure = await failure_of(remote(server, protocol, "go", proxy=proxy.url, login=SHOWN))
    assert f"the proxy `{proxy.address}` of the model `main` refused the login" in failure.public
    assert not failure.retryable
    async with ForwardProxy(refuse=b"HTTP/1.1 2") as proxy:
        _, failure = await failure_of(remote(server, protocol, "go", proxy=proxy.url))
    assert "the server of the model `main` cannot be reached" in failure.public


@both
async def test_a_proxy_that_is_not_there_is_tried_again(
    server: ModelServer, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection, and a proxy that keeps silent, fail as a server that cannot be reached does."""
    monkeypatch.setattr(forward_proxy, "TUNNEL_SECONDS", 0.05)
    async with ForwardProxy(silent=True) as silent:
        for url in ("http://127.0.0.1:9", silent.url):
            way = remote(server, protocol, "go", base_url="https://127.0.0.1:9/v1", proxy=url, login=SHOWN)
            _, failure = await failure_of(way)
            assert f"the proxy `{url.removeprefix('http://')}` of the model `main` cannot" in failure.public
            assert failure.retryable


@both
@pytest.mark.parametrize("login", ["", "nobody", ":secret", "tyrum:a\nX-Evil: 1"])
async def test_a_login_that_cannot_be_shown_is_not_shown(
    server: ModelServer, protocol: str, login: str
) -> None:
    """A secret that is no `USER:PASSWORD` fails the step with its name, before anything is sent."""
    async with ForwardProxy() as proxy:
        _, failure = await failure_of(remote(server, protocol, "go", proxy=proxy.url, login=login))
    assert f"the secret `{LOGIN}` of the model `main`" in failure.public
    assert not failure.retryable
    assert not login or login not in failure.public
    assert proxy.asked == []


@both
async def test_every_guard_holds_through_a_tunnel(protocol: str, tmp_path: Path) -> None:
    """Redirects, compression, sizes, cuts and waits are what they are without a proxy."""
    made = certified(tmp_path)
    guards = (
        ("redirects, which is not followed", False, Refuse(302, {"location": "http://127.0.0.1:9/"})),
        ("not in the protocol of its kind", False, Refuse(200, {"content-encoding": "gzip"}, body="x")),
        ("is busy (HTTP 429)", True, Refuse(429, {"retry-after": "7"})),
        ("failed (HTTP 500)", True, Refuse(500, {"content-length": "1000000000"}, body="x" * 70_000)),
        ("broke off", False, Cut(1)),
    )
    async with ModelServer(made.tls) as server, ForwardProxy() as proxy:
        server.play(
            "go", *(Step(text=("Half",), fault=fault) for _, _, fault in guards), Step(calls=TOO_MANY)
        )
        way = remote(server, protocol, "go", ca_file=made.authority.pem, proxy=proxy.url)
        for part, retryable, _ in (*guards, ("more than 64 calls", False, None)):
            _, failure = await failure_of(way)
            assert part in failure.public
            assert failure.retryable is retryable
            assert failure.retry_after in {None, timedelta(seconds=7)}
        assert len(proxy.asked) == len(server.requests) == len(guards) + 1
