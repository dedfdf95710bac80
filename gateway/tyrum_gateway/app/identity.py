"""Identity: who presents a bearer token. Tokens are stored and compared as digests only.

Invariant: what is forgotten here is asked of the store at the next call; nobody is remembered who was read
before that.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta

from tyrum_gateway.domain.errors import NotAuthenticated
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.ports import Clock, Ids, Store
from tyrum_gateway.domain.principal import Principal, Role

MAX_TOKEN = 512
"""Characters of the longest token that is looked at."""

TOKEN_PREFIX = "tyt_"  # noqa: S105 - what makes one recognisable
"""How every token begins that this gateway makes."""

_TOKEN_BYTES = 32
_REMEMBERED = 1024
_FRESH = timedelta(seconds=5)
_INVALID = "the bearer token is not valid"


class Identity:
    """Authenticates callers; a known token is remembered for a few seconds."""

    def __init__(self, *, store: Store, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._known: OrderedDict[str, tuple[datetime, Principal]] = OrderedDict()
        self._changes = 0

    async def authenticate(self, token: str) -> Principal:
        """Find the principal of a token.

        Raises:
            NotAuthenticated: The token is malformed, unknown, expired or revoked, or its principal disabled;
                the message does not tell which.
        """
        if not 0 < len(token) <= MAX_TOKEN:
            raise NotAuthenticated(_INVALID)
        digest = token_digest(token)
        now = self._clock.now()
        remembered = self._known.get(digest)
        # Also bounded when the clock is set back.
        if remembered is not None and abs(now - remembered[0]) < _FRESH and not _over(remembered[1], now):
            return remembered[1]
        principal = await self._read(digest, now)
        if principal is None:
            self._known.pop(digest, None)
            raise NotAuthenticated(_INVALID)
        self._known[digest] = (now, principal)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return principal

    async def _read(self, digest: str, now: datetime) -> Principal | None:
        while True:
            changes = self._changes
            principal = await self._store.principal_by_token(digest, now)
            if changes == self._changes:
                return principal

    def forget(self) -> None:
        """Ask the store about everybody again; called after every change."""
        self._changes += 1
        self._known.clear()

    async def ensure(self, name: str, roles: Sequence[Role], token: str) -> bool:
        """Create the named principal unless it exists, and give it the token of its file.

        Returns:
            Whether one can authenticate with the token: not when it was revoked before, or the principal is
            disabled.
        """
        digest, now = token_digest(token), self._clock.now()
        await self._store.ensure_principal(self._ids.new(PrincipalId), name, roles, digest, now)
        return await self._store.principal_by_token(digest, now) is not None


def _over(principal: Principal, now: datetime) -> bool:
    return principal.expires_at is not None and now >= principal.expires_at


def new_token() -> str:
    """Make a secret that nobody guesses: `tyt_` and 43 characters of base64url."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_digest(token: str) -> str:
    """Hexadecimal sha256 under which a token is stored."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
