"""The cryptography of the handshake: two keys from the one-time token, and the proof over a nonce.

Invariant: neither the proof key nor the bearer reveals the other or the token. The test vectors in
`tyrum/contracts/handshake-vectors.json` bind every implementation.
"""

import base64
import binascii
import hmac
import re
from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

TOKEN_BYTES = 32
TOKEN_CHARACTERS = 43
NONCE_BYTES = 32
LABEL = b"tyrum-handshake-1"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Transcript:
    """What both sides have agreed on and the proof covers."""

    nonce: bytes
    instance_id: str
    kind: str
    control_version: int
    contract_version: str
    contract_digest: str

    def encode(self) -> bytes:
        """Encode label and fields, each field preceded by its length as u32 big-endian."""
        fields = (
            self.nonce,
            self.instance_id.encode(),
            self.kind.encode(),
            str(self.control_version).encode(),
            self.contract_version.encode(),
            self.contract_digest.encode(),
        )
        return LABEL + b"".join(len(field).to_bytes(4, "big") + field for field in fields)


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """The two keys of one instance; never printed."""

    proof_key: bytes
    bearer: str

    @classmethod
    def derive(cls, token: bytes) -> "Credentials":
        """Derive both keys from the one-time token of 32 bytes."""
        bearer = _subkey(token, b"tyrum/bearer/1")
        return cls(
            proof_key=_subkey(token, b"tyrum/proof/1"),
            bearer=base64.urlsafe_b64encode(bearer).rstrip(b"=").decode(),
        )

    def proof(self, transcript: Transcript) -> bytes:
        """Prove knowledge of the token for this transcript: 32 bytes."""
        return hmac.digest(self.proof_key, transcript.encode(), "sha256")

    def accepts(self, bearer: str) -> bool:
        """Compare a presented bearer in constant time."""
        return hmac.compare_digest(bearer.encode(errors="replace"), self.bearer.encode())


def decode_token(text: str) -> bytes:
    """Decode the token line.

    Raises:
        ValueError: not base64url without padding of 32 bytes; the message never repeats the text.
    """
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"the token must be {TOKEN_CHARACTERS} characters of base64url without padding")
    try:
        return base64.b64decode(text + "=", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("the token is not base64url of 32 bytes") from error


def _subkey(token: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(token)
