"""Whom a model behind HTTP trusts as its server: the authorities of its file and nobody else."""

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
        for model in (
            remote(server, protocol, "go", ca_file=other.pem),
            remote(server, protocol, "go"),
            remote(server, protocol, "go", ca_file=authority.pem, base_url=named),
        ):
            _, failure = await failure_of(model)
            assert "is not trusted" in failure.public
            assert "`ca_file`" in failure.public
            assert not failure.retryable
        assert server.calls("go") == 1
    assert not (tmp_path / "keys").exists()
