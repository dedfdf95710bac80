"""Streams end with the right to have them."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.storage.builders import new
from tyrum_gateway.app import sessions as sessions_module
from tyrum_gateway.app.sessions import Sessions
from tyrum_gateway.bootstrap.system import SystemClock
from tyrum_gateway.domain.errors import NotAuthenticated, NotAuthorized, QuotaExceeded, translate
from tyrum_gateway.domain.ids import PrincipalId, TokenId
from tyrum_gateway.domain.principal import Principal

DEADLINE = 20.0


def somebody() -> Principal:
    """A principal with a token."""
    return Principal(new(PrincipalId), "anna", frozenset(), "token", token_id=new(TokenId))


async def lasting(sessions: Sessions, principal: Principal, begun: asyncio.Event) -> None:
    """A stream that never ends by itself."""
    async with sessions.during(principal):
        begun.set()
        await asyncio.Event().wait()


async def begin(sessions: Sessions, principal: Principal) -> asyncio.Task[None]:
    """Start a stream that never ends by itself."""
    begun = asyncio.Event()
    task = asyncio.create_task(lasting(sessions, principal, begun))
    async with asyncio.timeout(DEADLINE):
        await begun.wait()
    return task


async def test_a_revoked_token_ends_its_streams_and_no_others() -> None:
    """Revoking one token ends what was opened with it; disabling the principal ends the rest."""
    sessions, anna, bert = Sessions(SystemClock()), somebody(), somebody()
    other = replace(anna, token_id=new(TokenId))
    first, second, third = [await begin(sessions, one) for one in (anna, other, bert)]
    sessions.end(anna.principal_id, NotAuthenticated("revoked"), anna.token_id)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(NotAuthenticated, match="revoked"):
            await first
    assert len(sessions) == 2
    sessions.end(anna.principal_id, NotAuthorized("roles"))
    sessions.end(anna.principal_id, NotAuthorized("roles"))  # again, while it ends
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(NotAuthorized, match="roles"):
            await second
    assert not third.done()
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert len(sessions) == 0


@pytest.mark.parametrize("seconds", [-1.0, 0.05])
async def test_a_stream_does_not_outlive_its_token(seconds: float) -> None:
    """When the token expires, so does the stream; one that begins later does not live at all."""
    clock = SystemClock()
    principal = replace(somebody(), expires_at=clock.now() + timedelta(seconds=seconds))
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(NotAuthenticated):
            await lasting(Sessions(clock), principal, asyncio.Event())


class SetClock(SystemClock):
    """A clock that somebody sets."""

    ahead = timedelta()

    def now(self) -> datetime:
        """See `Clock.now`."""
        return super().now() + self.ahead


async def test_a_stream_does_not_outlive_its_token_over_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the clock is ahead of the time that has passed: it was set, or the machine slept."""
    monkeypatch.setattr(sessions_module, "LONGEST_SLEEP", 0.02)
    clock = SetClock()
    principal = replace(somebody(), expires_at=clock.now() + timedelta(hours=8))
    task = await begin(Sessions(clock), principal)
    clock.ahead = timedelta(hours=9)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(NotAuthenticated):
            await task


async def test_errors_of_a_stream_stay_what_they_are() -> None:
    """A stream's own error, a timeout among them, is not taken for the end of its right."""
    sessions = Sessions(SystemClock())
    for error in (TimeoutError("own"), ValueError("own")):
        with pytest.raises(type(error), match="own"):
            async with sessions.during(somebody()):
                raise error
    assert len(sessions) == 0


async def test_the_streams_of_a_principal_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One principal has so many streams and no more, with any token of its; others have theirs."""
    monkeypatch.setattr("tyrum_gateway.app.sessions.MOST_STREAMS", 2)
    sessions, anna = Sessions(SystemClock()), somebody()
    streams = [await begin(sessions, one) for one in (anna, replace(anna, token_id=new(TokenId)))]
    with pytest.raises(QuotaExceeded, match="2 streams open") as refused:
        await lasting(sessions, anna, asyncio.Event())
    assert translate(refused.value).reason == "QUOTA"
    streams.append(await begin(sessions, somebody()))
    streams[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await streams[0]
    streams.append(await begin(sessions, anna))
    for stream in streams[1:]:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    assert len(sessions) == 0
