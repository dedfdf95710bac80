"""The key that signs heads of the audit log: Ed25519, in PEM files that openssl reads.

Invariant: the private key is readable by its owner only and is used for nothing but heads. Whoever has it can
forge heads; that is why heads are worth copying to a place that its holder does not control.
"""

import base64
import binascii
import hashlib
import os
import stat
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from tyrum_gateway.domain.audit import SignedHead, signed_bytes
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage.new_file import create, make_directory

LARGEST_KEY = 4096
"""Bytes of the largest key file that is looked at."""


class VerifyingKey:
    """A public key."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.key_id = "ed25519:" + hashlib.sha256(raw).hexdigest()[:32]
        """Names the key: the beginning of the hexadecimal sha256 of its 32 bytes."""

    @classmethod
    def of_pem(cls, pem: bytes) -> Self:
        """Read a key in PEM.

        Raises:
            ValueError: It is no Ed25519 public key.
        """
        key = load_pem_public_key(pem)
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("not an Ed25519 public key")  # noqa: TRY004 - callers know one error
        return cls(key)

    @property
    def pem(self) -> bytes:
        """The key in PEM."""
        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def authentic(self, head: SignedHead) -> bool:
        """Tell whether a head was signed with this key."""
        if head.key_id != self.key_id:
            return False
        covered = signed_bytes(sequence=head.sequence, row=head.hash, at=head.at, key_id=head.key_id)
        try:
            self._key.verify(base64.b64decode(head.signature, validate=True), covered)
        except (InvalidSignature, binascii.Error, ValueError):
            return False
        return True


class SigningKey:
    """The gateway's key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = VerifyingKey(key.public_key())

    @classmethod
    def present(cls, directory: Path) -> Self | None:
        """Read `key`, changing nothing; None when it is missing.

        Raises:
            StateUnusable: The file is not private, is no key, or cannot be read.
        """
        path = directory / "key"
        try:
            return cls(_read(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateUnusable(f"cannot use the audit key `{path}`: {error.strerror}") from error

    @classmethod
    def prepare(cls, directory: Path) -> Self:
        """Read `key`, or make it at the first start, and keep `key.pub` beside it.

        A `key.pub` of another key is kept as `key-ID.pub`: without it, its heads would prove nothing.

        Raises:
            StateUnusable: The file is not private, is no key, or cannot be made.
        """
        path = directory / "key"
        try:
            make_directory(directory, 0o700)
            key = cls.present(directory)
            if key is None:
                create(path, _generate(), 0o600)
                key = cls(_read(path))
            public = directory / "key.pub"
            if not public.exists() or public.read_bytes() != key.public.pem:
                _set_aside(public)
                create(public, key.public.pem, 0o644)
        except OSError as error:
            raise StateUnusable(f"cannot use the audit key `{path}`: {error.strerror}") from error
        return key

    def sign(self, *, sequence: int, row: str, at: int) -> SignedHead:
        """Sign the chain up to a row."""
        key_id = self.public.key_id
        signature = self._key.sign(signed_bytes(sequence=sequence, row=row, at=at, key_id=key_id))
        return SignedHead(sequence, row, at, key_id, base64.b64encode(signature).decode())


def _set_aside(public: Path) -> None:
    try:
        former = VerifyingKey.of_pem(public.read_bytes())
    except (FileNotFoundError, ValueError):
        public.unlink(missing_ok=True)
        return
    public.rename(public.with_name(f"key-{former.key_id.rpartition(':')[2]}.pub"))


def _generate() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read(path: Path) -> Ed25519PrivateKey:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid != os.geteuid():
        raise StateUnusable(f"the audit key `{path}` must be your own file with mode 600")
    with path.open("rb") as file:
        content = file.read(LARGEST_KEY)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError) as error:
        raise StateUnusable(f"`{path}` holds no audit key: restore it, see docs/guides/audit.md") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise StateUnusable(f"`{path}` holds no Ed25519 key: restore it, see docs/guides/audit.md")
    return key
