"""What the audit log says of the gateway itself: its starts and stops, and the heads that anchor the log.

Invariant: nothing is written to a database that does not hold the last signed head; a start that was not
followed by a stop is visible as one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tyrum_gateway.app.alarms import Alarms
from tyrum_gateway.app.audit_heads import HeadKeeper
from tyrum_gateway.bootstrap.system import SystemClock
from tyrum_gateway.config.settings import Settings
from tyrum_gateway.domain.audit import SignedHead
from tyrum_gateway.domain.commit import AuditEntry
from tyrum_gateway.domain.errors import StateUnusable
from tyrum_gateway.storage import SqliteStore
from tyrum_gateway.storage.audit_heads import HeadsFile
from tyrum_gateway.storage.audit_key import SigningKey, VerifyingKey

GATEWAY = "gateway"
"""Subject of rows about the gateway itself."""


def require_database(database: Path, directory: Path, heads: Path | None) -> None:
    """Refuse to begin a new database where heads were signed over another one: it was lost, or not mounted.

    Args:
        database: The file that a start would create.
        directory: Where the key is, and the heads unless configured elsewhere.
        heads: Where they are then.

    Raises:
        StateUnusable: There are heads and no database. Nothing was made.
    """
    place = heads or directory / "heads.jsonl"
    if (database.exists() and database.stat().st_size) or not place.exists():
        return
    last = HeadsFile(place).last()
    if last is not None:
        raise StateUnusable(
            f"the database `{database}` is missing, and `{place}` has a head over its audit row "
            f"{last.sequence}: restore the newest database, or move the heads away knowingly, "
            "see docs/guides/audit.md",
            sequence=str(last.sequence),
        )


class Anchor:
    """The place of the heads and the key, as one."""

    def __init__(self, directory: Path, heads: Path | None) -> None:
        """Prepare key and place; a key is made, and its public key renewed, only when the last head fits.

        Raises:
            StateUnusable: The key cannot be used, the heads cannot be read, or the last one was not signed
                with the key. Then nothing was made or renamed.
        """
        self.file = HeadsFile(heads or directory / "heads.jsonl")
        first = self.file.path.parent == directory and not directory.exists()
        self.last = None if first else self.file.last()
        """Newest head when the gateway started; this key signed it."""
        key = SigningKey.present(directory)
        if self.last is not None and not (key and key.public.authentic(self.last)):
            path, problem = directory / "key", "is missing" if key is None else "is another one"
            raise StateUnusable(
                f"the key `{path}`, which signed the last audit head in `{self.file.path}`, {problem}: "
                "restore it, or move the heads away knowingly, see docs/guides/audit.md",
                sequence=str(self.last.sequence),
            )
        self._key = SigningKey.prepare(directory)
        self.public: VerifyingKey = self._key.public

    def sign(self, *, sequence: int, row: str, at: int) -> SignedHead:
        """See `Signer.sign`."""
        return self._key.sign(sequence=sequence, row=row, at=at)


@asynccontextmanager
async def recorded(
    settings: Settings, store: SqliteStore, anchor: Anchor, version: str, alarms: Alarms
) -> AsyncIterator[HeadKeeper]:
    """Check the database against the last head, then record start and orderly stop and sign heads over them.

    Raises:
        StateUnusable: The database does not hold what was signed, or no head can be kept.
    """
    clock = SystemClock()
    keeper = HeadKeeper(
        store=store,
        audit=store.audit,
        heads=anchor.file,
        last=anchor.last,
        signer=anchor,
        clock=clock,
        activity=lambda: store.statistics.commits,
        place=str(anchor.file.path),
        alarms=alarms,
    )
    await keeper.check()
    started = AuditEntry(
        "gateway.started",
        "kernel",
        GATEWAY,
        {
            "version": version,
            "config": settings.source_digest,
            "policies": {name: bundle.digest for name, bundle in settings.policies.items()},
            "audit_key": anchor.public.key_id,
        },
    )
    await store.record((started,), clock.now())
    await keeper.sign_or_fail()
    yield keeper
    await store.record((AuditEntry("gateway.stopped", "kernel", GATEWAY, {"version": version}),), clock.now())
    await keeper.sign()
