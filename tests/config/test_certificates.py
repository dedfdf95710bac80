"""Files for TLS: what cannot be served with is a problem of the file, by position."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.config.files import MINIMAL, load, write
from tests.support.certificates import Authority, Pair
from tyrum_gateway.config import ConfigProblems, certificate_warnings, check_file
from tyrum_gateway.config.listening import certificate_end, expiry_warning, key_fault


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs for the file's tests."""
    return Authority.create(tmp_path_factory.mktemp("authority"))


def served(directory: Path, pair: Pair, more: str = "") -> list[str]:
    """What `tyrum serve` would say about a file with this pair, as `line:column: path: message`."""
    tls = f"  tls:\n    cert: {pair.cert}\n    key: {pair.key}\n{more}"
    text = f"{MINIMAL}listen:\n  tcp: 0.0.0.0:7460\n{tls}"
    try:
        load(directory, text)
    except ConfigProblems as found:
        prefix = f"{directory / 'tyrum.yaml'}:"
        return [str(problem).removeprefix(prefix) for problem in found.problems]
    return []


def test_a_good_pair_serves_beyond_loopback(tmp_path: Path, authority: Authority) -> None:
    """With a certificate and its private key any address may be listened on; paths start at the file."""
    pair = authority.issue("good", "localhost")
    assert served(tmp_path, pair) == []
    assert served(tmp_path, pair, f"    client_ca: {authority.pem}\n") == []
    (tmp_path / "near.pem").write_bytes(pair.cert.read_bytes())
    near = Pair(Path("near.pem"), pair.key)
    assert served(tmp_path, near) == []


def _missing(pair: Pair) -> None:
    pair.cert.unlink()


def _readable(pair: Pair) -> None:
    pair.key.chmod(0o640)


def _no_key(pair: Pair) -> None:
    pair.key.write_text("nothing")


def _no_certificate(pair: Pair) -> None:
    pair.cert.write_text("nothing")


def _encrypted(pair: Pair) -> None:
    key = load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    )


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_missing, "11:5: listen.tls.cert: this file cannot be read: No such file or directory"),
        (_no_certificate, "11:5: listen.tls.cert: this file holds no PEM certificate"),
        (_readable, "12:5: listen.tls.key: this key can be read by others (mode 0640): chmod 600 it"),
        (_no_key, "12:5: listen.tls.key: this file holds no PEM private key"),
        (_encrypted, "12:5: listen.tls.key: this key is encrypted"),
    ],
)
def test_a_file_that_cannot_be_served_with_is_named(
    tmp_path: Path, authority: Authority, damage: Callable[[Pair], None], expected: str
) -> None:
    """Each fault of certificate or key is one problem at its key."""
    pair = authority.issue(damage.__name__.strip("_"), "localhost")
    damage(pair)
    (problem,) = served(tmp_path, pair)
    assert problem.startswith(expected)


def test_bound_principals_need_an_authority_of_clients(tmp_path: Path, authority: Authority) -> None:
    """A principal that is bound to a certificate which nobody is asked for could never call."""
    pair = authority.issue("bound", "localhost")
    bound = "    principals: {anna: [anna-laptop]}\n"
    assert served(tmp_path, pair, f"    client_ca: {authority.pem}\n{bound}") == []
    (problem,) = served(tmp_path, pair, bound)
    assert problem.startswith(
        "13:17: listen.tls.principals: without `client_ca` no client shows a certificate"
    )


@pytest.mark.parametrize(
    ("mode", "owner", "group", "fault"),
    [
        (0o600, 1000, 1000, ""),
        (0o400, 1000, 50, ""),
        (0o400, 0, 0, ""),
        (0o440, 0, 0, ""),
        (0o640, 0, 113, ""),
        (0o640, 0, 114, "mode 0640"),
        (0o640, 1000, 1000, "chmod 600"),
        (0o660, 0, 0, "changed by others"),
        (0o444, 0, 0, "read or changed by others"),
        (0o604, 1000, 1000, "read or changed by others"),
        (0o600, 1001, 1000, "uid 1001"),
    ],
)
def test_who_may_have_the_key(mode: int, owner: int, group: int, fault: str) -> None:
    """Nobody but the gateway's user and root; what root prepared may be open to a group of the gateway's."""
    status = os.stat_result((0o100000 | mode, 1, 1, 1, owner, group, 0, 0, 0, 0))
    found = key_fault(status, 1000, {1000, 113})
    assert fault in found
    assert bool(fault) == bool(found)
    if owner != 1001 and mode & 0o077:
        assert key_fault(status, 0, {0}), "root closes its own files"


def test_a_key_of_another_certificate_is_refused(tmp_path: Path, authority: Authority) -> None:
    """Certificate and key must belong together."""
    first, second = authority.issue("first", "localhost"), authority.issue("second", "localhost")
    assert served(tmp_path, Pair(first.cert, second.key)) == [
        "12:5: listen.tls.key: this key is not that of the certificate in `cert`"
    ]


def test_only_serving_looks_at_the_files(tmp_path: Path) -> None:
    """A file can be read on a machine that does not hold the key."""
    text = f"{MINIMAL}listen: {{tcp: 0.0.0.0:7460, tls: {{cert: /nowhere, key: /nowhere}}}}\n"
    check_file(write(tmp_path, text), environment=os.environ)


def test_the_end_of_a_certificate_is_warned_of(authority: Authority) -> None:
    """Thirty days before its end a certificate is warned of, and differently after it."""
    pair = authority.issue("ending", "localhost")
    end = certificate_end(pair.cert)
    assert end > datetime.now(UTC)
    assert expiry_warning(pair.cert, end - timedelta(days=31)) == ""
    assert "expires at" in expiry_warning(pair.cert, end - timedelta(days=29))
    assert "expired at" in expiry_warning(pair.cert, end)


def test_a_certificate_that_every_client_refuses_is_warned_of(tmp_path: Path, authority: Authority) -> None:
    """One without the names that clients look at, for another use, or past its end, is served and told of."""

    def warned(pair: Pair) -> list[str]:
        tls = f"  tls:\n    cert: {pair.cert}\n    key: {pair.key}\n"
        path = write(tmp_path, f"{MINIMAL}listen:\n  tcp: 0.0.0.0:7460\n{tls}")
        found = certificate_warnings(check_file(path, environment=os.environ))
        return [str(problem).removeprefix(f"{path}:") for problem in found]

    assert warned(authority.issue("good", "localhost")) == []
    pair = Pair(tmp_path / "odd.pem", tmp_path / "odd.key")
    key, name, end = generate_private_key(SECP256R1()), x509.Name([]), datetime.now(UTC) - timedelta(days=1)
    odd = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, end - timedelta(days=1), end)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, SHA256())
    )
    pair.cert.write_bytes(odd.public_bytes(Encoding.PEM))
    pair.key.touch(mode=0o600)
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert served(tmp_path, pair) == []
    san, use, ended = warned(pair)
    assert san.startswith("11:5: listen.tls.cert: this certificate has no subject alternative name")
    assert "lacks serverAuth" in use
    assert "expired at" in ended
