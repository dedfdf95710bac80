"""Identity: who presents a bearer token. Tokens are stored and compared as digests only."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta

from tyrum_gateway.domain.errors import NotAuthenticated
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.ports import Clock, Ids, Store
from tyrum_gateway.domain.principal import Principal, Role

MAX_TOKEN = 512
"""Characters of the longest token that is looked at."""

_REMEMBERED = 1024
_FRESH = timedelta(seconds=5)


class Identity:
    """Authenticates callers; a known token is remembered for a few seconds."""

    def __init__(self, *, store: Store, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._known: OrderedDict[str, tuple[datetime, Principal]] = OrderedDict()

    async def authenticate(self, token: str) -> Principal:
        """Find the principal of a token.

        Raises:
            NotAuthenticated: The token is malformed, unknown, expired or revoked; the message does not tell
                which.
        """
        if not 0 < len(token) <= MAX_TOKEN:
            raise NotAuthenticated("the bearer token is not valid")
        digest = token_digest(token)
        now = self._clock.now()
        remembered = self._known.get(digest)
        # Also bounded when the clock is set back.
        if remembered is not None and abs(now - remembered[0]) < _FRESH:
            return remembered[1]
        principal = await self._store.principal_by_token(digest, now)
        if principal is None:
            self._known.pop(digest, None)
            raise NotAuthenticated("the bearer token is not valid")
        self._known[digest] = (now, principal)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return principal

    async def ensure(self, name: str, roles: Sequence[Role], token: str) -> PrincipalId:
        """Create the named principal with a token unless it exists; return its id."""
        return await self._store.ensure_principal(
            self._ids.new(PrincipalId), name, roles, token_digest(token), self._clock.now()
        )


def token_digest(token: str) -> str:
    """Hexadecimal sha256 under which a token is stored."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
