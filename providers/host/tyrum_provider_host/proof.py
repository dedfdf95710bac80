"""The one-time token and what both sides derive from it.

Invariant: the two derived keys reveal neither each other nor the token; a proof is bound to one nonce, one
instance and the versions agreed on, so that none can be replayed or downgraded.
"""

import base64
import hmac
import secrets
import struct
from hashlib import sha256

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

TOKEN_BYTES = 32
NONCE_BYTES = 32
_LABEL = b"tyrum-handshake-1"
_PROOF_INFO = b"tyrum/proof/1"
_BEARER_INFO = b"tyrum/bearer/1"


def new_token() -> bytes:
    """Return a fresh token."""
    return secrets.token_bytes(TOKEN_BYTES)


def new_nonce() -> bytes:
    """Return a fresh nonce."""
    return secrets.token_bytes(NONCE_BYTES)


def encode(value: bytes) -> str:
    """Encode as base64url without padding, as token and bearer travel."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def bearer(token: bytes) -> str:
    """Derive the bearer that authenticates the host's calls."""
    return encode(_derive(token, _BEARER_INFO))


def proof(
    token: bytes,
    *,
    nonce: bytes,
    instance_id: str,
    kind: str,
    control_version: int,
    contract_version: str,
    contract_digest: str,
) -> bytes:
    """Compute the proof for one handshake; `contract_version` is written `major.minor`."""
    fields = (
        nonce,
        instance_id.encode(),
        kind.encode(),
        str(control_version).encode(),
        contract_version.encode(),
        contract_digest.encode(),
    )
    message = _LABEL + b"".join(struct.pack(">I", len(field)) + field for field in fields)
    return hmac.digest(_derive(token, _PROOF_INFO), message, "sha256")


def proves(expected: bytes, presented: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(expected, presented)


def fingerprint(value: bytes) -> str:
    """Return a short digest that identifies a proof in messages without revealing it."""
    return sha256(value).hexdigest()[:12]


def _derive(token: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(token)
