"""Certificates for tests: an authority of their own, and what it signs, as an operator has them in files."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates into a directory."""

    directory: Path
    signer: trustme.CA
    pem: Path
    """Its own certificate."""

    @classmethod
    def create(cls, directory: Path) -> "Authority":
        """Make a new one."""
        directory.mkdir(parents=True, exist_ok=True)
        signer, pem = trustme.CA(), directory / "ca.pem"
        signer.cert_pem.write_to_path(str(pem))
        return cls(directory, signer, pem)

    def issue(
        self, name: str, *identities: str, start: datetime | None = None, end: datetime | None = None
    ) -> Pair:
        """Sign a certificate with `name` as its common name, for hosts or addresses."""
        issued = self.signer.issue_cert(*identities, common_name=name, not_before=start, not_after=end)
        cert, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.touch(mode=0o600)
        issued.private_key_pem.write_to_path(str(key))
        return Pair(cert, key)
