"""The handshake's cryptography, against vectors and against the formula written out by hand."""

import base64
import hashlib
import hmac
import json
import struct
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from tyrum_provider_kit.proof import Credentials, Transcript, decode_token

VECTORS: list[dict[str, Any]] = json.loads(
    (resources.files("tyrum") / "contracts" / "handshake-vectors.json").read_text("utf-8")
)["vectors"]
each_vector = pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])


def _subkey(token: bytes, info: bytes) -> bytes:
    extracted = hmac.new(bytes(32), token, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def _message(vector: dict[str, Any]) -> bytes:
    fields = [bytes.fromhex(vector["nonce"])] + [
        str(vector[name]).encode()
        for name in ("instance_id", "kind", "control_version", "contract_version", "contract_digest")
    ]
    return b"tyrum-handshake-1" + b"".join(struct.pack(">I", len(field)) + field for field in fields)


def _transcript(vector: dict[str, Any]) -> Transcript:
    return Transcript(
        nonce=bytes.fromhex(vector["nonce"]),
        instance_id=vector["instance_id"],
        kind=vector["kind"],
        control_version=vector["control_version"],
        contract_version=vector["contract_version"],
        contract_digest=vector["contract_digest"],
    )


@each_vector
def test_vectors_follow_the_formula(vector: dict[str, Any]) -> None:
    """The published vectors are what the contract's formula gives with nothing but HMAC-SHA256."""
    token = base64.urlsafe_b64decode(vector["token"] + "=")
    key = _subkey(token, b"tyrum/proof/1")
    assert key.hex() == vector["proof_key"]
    assert hashlib.sha256(_message(vector)).hexdigest() == vector["message_sha256"]
    assert hmac.new(key, _message(vector), hashlib.sha256).hexdigest() == vector["proof"]
    bearer = base64.urlsafe_b64encode(_subkey(token, b"tyrum/bearer/1")).decode()
    assert bearer.rstrip("=") == vector["bearer"]


@each_vector
def test_kit_agrees_with_the_vectors(vector: dict[str, Any]) -> None:
    """The kit derives the same keys and the same proof as every other implementation."""
    credentials = Credentials.derive(decode_token(vector["token"]))
    assert credentials.proof_key.hex() == vector["proof_key"]
    assert credentials.accepts(vector["bearer"])
    assert credentials.proof(_transcript(vector)).hex() == vector["proof"]


@each_vector
def test_proof_covers_every_field(vector: dict[str, Any]) -> None:
    """Changing any one field of the transcript changes the proof."""
    credentials = Credentials.derive(decode_token(vector["token"]))
    transcript = _transcript(vector)
    changed = [
        replace(transcript, nonce=b"\x01" + transcript.nonce[1:] + b"\x01"),
        replace(transcript, instance_id=transcript.instance_id + "x"),
        replace(transcript, kind=transcript.kind + "x"),
        replace(transcript, control_version=transcript.control_version - 1),
        replace(transcript, contract_version=transcript.contract_version + "0"),
        replace(transcript, contract_digest=transcript.contract_digest[:-1] + "x"),
    ]
    proofs = {credentials.proof(item) for item in [transcript, *changed]}
    assert len(proofs) == 7


def test_vectors_are_varied() -> None:
    """The vectors hold the cases in which implementations differ: zeros, UTF-8, long fields, boundaries."""
    assert len(VECTORS) >= 5
    assert any(decode_token(vector["token"]) == bytes(32) for vector in VECTORS)
    assert any(not vector["kind"].isascii() for vector in VECTORS)
    assert any(len(vector["kind"]) > 255 for vector in VECTORS)
    assert any("-" in vector["bearer"] and "_" in vector["bearer"] for vector in VECTORS)
    assert len({vector["proof"] for vector in VECTORS}) == len(VECTORS)


@pytest.mark.parametrize("text", ["", "A" * 42, "A" * 44, "A" * 43 + "=", "+" * 43, "é" * 43, " " + "A" * 42])
def test_malformed_tokens_are_refused_without_being_repeated(text: str) -> None:
    """A token line that is not 32 bytes of base64url is refused, and the message does not repeat it."""
    with pytest.raises(ValueError, match="token") as caught:
        decode_token(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("presented", ["", "x", "é", "\ud800"])
def test_foreign_bearers_are_refused(presented: str) -> None:
    """No other text passes as the bearer, whatever its characters."""
    assert not Credentials.derive(bytes(32)).accepts(presented)
