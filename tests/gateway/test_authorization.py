"""Authorization: every RPC has a row, and the row is what happens."""

import asyncio
import hashlib
import sqlite3
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc.aio
import pytest
from grpc import StatusCode

from tests.storage.builders import new, now
from tests.support import configs
from tests.support.client import Client, connected
from tests.support.gateway import RunningGateway, serving
from tests.support.served import Metadata, Rpc, call, infos, rpcs
from tyrum.chat.v1 import chat_pb2
from tyrum_gateway.domain.ids import PrincipalId
from tyrum_gateway.domain.principal import Role
from tyrum_gateway.rpc.authorization import TABLE, AnyOf, Open
from tyrum_gateway.storage import SqliteStore

CHECKED_AFTER = 5.0
"""Seconds for which the gateway remembers a token that was good."""

PRINCIPALS = {
    **{f"only {role.value}": [role.value] for role in Role},
    "only nothing": [],
    "other": ["chat"],
    "lapses": ["chat"],
    **{state: [role.value for role in Role] for state in ("expired", "revoked", "disabled")},
}

SPENDING = {
    "expires_at": "UPDATE tokens SET expires_at = ? WHERE token_sha256 = ?",
    "revoked_at": "UPDATE tokens SET revoked_at = ? WHERE token_sha256 = ?",
    "disabled_at": "UPDATE principals SET disabled_at = ? WHERE principal_id = "
    "(SELECT principal_id FROM tokens WHERE token_sha256 = ?)",
}


def token_of(name: str) -> str:
    """The token that a test gives to a principal."""
    return f"{name}-".replace(" ", "-") + "t" * 40


def bearer(token: str) -> Metadata:
    """What authenticates with a token."""
    return (("authorization", f"Bearer {token}"),)


@dataclass(frozen=True, slots=True)
class Place:
    """A gateway whose database held principals before it started."""

    gateway: RunningGateway

    @property
    def database(self) -> str:
        """Its file."""
        return str(self.gateway.state_dir / "tyrum.sqlite3")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A gateway with one principal for each single role, one without any, and spent tokens."""
    directory = tmp_path_factory.mktemp("authorization")
    state = directory / "state"
    state.mkdir(mode=0o700)

    async def prepare() -> None:
        async with await SqliteStore.open(state / "tyrum.sqlite3") as store:
            for name, roles in PRINCIPALS.items():
                digest = hashlib.sha256(token_of(name).encode()).hexdigest()
                await store.ensure_principal(new(PrincipalId), name, roles, digest, now())

    asyncio.run(prepare())
    spend(str(state / "tyrum.sqlite3"), "expired", "expires_at")
    spend(str(state / "tyrum.sqlite3"), "revoked", "revoked_at")
    spend(str(state / "tyrum.sqlite3"), "disabled", "disabled_at")
    with serving(directory, configs.write(directory)) as running:
        yield Place(running)


def spend(database: str, name: str, column: str) -> None:
    """Let a principal's token have expired or been revoked, or the principal disabled, a second ago."""
    digest = hashlib.sha256(token_of(name).encode()).hexdigest()
    with sqlite3.connect(database) as connection:
        before = int((time.time() - 1) * 1_000_000)
        changed = connection.execute(SPENDING[column], (before, digest))
        assert changed.rowcount == 1
    connection.close()


async def answer(client: Client, rpc: Rpc, metadata: Metadata | None) -> tuple[StatusCode, str]:
    """Call with an empty request; return code and reason."""
    try:
        await call(client.channel, rpc, b"", metadata, timeout=30)
    except grpc.aio.AioRpcError as error:
        found = infos(error)
        return error.code(), found[0].reason if found else error.details() or ""
    return StatusCode.OK, ""


async def served(client: Client) -> list[Rpc]:
    """Everything the gateway serves."""
    return await rpcs(client.channel, client.metadata)


async def test_every_rpc_has_a_row_and_every_row_an_rpc(place: Place) -> None:
    """What reflection shows and what the table knows are the same, and health alone is open."""
    async with connected(place.gateway) as client:
        found = {(rpc.service, rpc.method) for rpc in await served(client)}
    assert found == set(TABLE)
    assert {service for (service, _), access in TABLE.items() if isinstance(access, Open)} == {
        "grpc.health.v1.Health"
    }


async def test_without_a_valid_token_nothing_but_health_answers(place: Place) -> None:
    """RPC by RPC: missing, malformed, wrong, expired, revoked and disabled credentials get nowhere."""
    missing = (StatusCode.UNAUTHENTICATED, "TOKEN_MISSING")
    invalid = (StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")
    right = place.gateway.token
    presented: list[tuple[Metadata | None, tuple[StatusCode, str]]] = [
        (None, missing),
        ((("authorization", ""),), missing),
        ((("authorization", right),), missing),
        ((("authorization", f"bearer {right}"),), missing),
        ((("authorization", f"Basic {right}"),), missing),
        ((*bearer(right), *bearer(right)), missing),
        ((("x-authorization", f"Bearer {right}"),), missing),
        (bearer(""), invalid),
        (bearer(f" {right}"), invalid),
        (bearer(right[:-1]), invalid),
        (bearer(right + "x"), invalid),
        (bearer(right.swapcase()), invalid),
        (bearer("x" * 4000), invalid),
        (bearer(hashlib.sha256(right.encode()).hexdigest()), invalid),
        (bearer(token_of("expired")), invalid),
        (bearer(token_of("revoked")), invalid),
        (bearer(token_of("disabled")), invalid),
    ]
    async with connected(place.gateway) as client:
        for rpc in await served(client):
            access = TABLE[rpc.service, rpc.method]
            for metadata, expected in presented:
                got = await answer(client, rpc, metadata)
                if isinstance(access, Open):
                    assert got[0] is not StatusCode.UNAUTHENTICATED, rpc
                else:
                    assert got == expected, (rpc, metadata)
            code, _ = await answer(client, rpc, client.metadata)
            assert code not in {StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED}, rpc


@pytest.mark.parametrize("role", [*(role.value for role in Role), "nothing"])
async def test_a_single_role_opens_exactly_its_rows(place: Place, role: str) -> None:
    """RPC by RPC: a principal with one role gets past the guard where the table says so and nowhere else."""
    async with connected(place.gateway) as client:
        for rpc in await served(client):
            access = TABLE[rpc.service, rpc.method]
            admitted = not isinstance(access, AnyOf) or role in access.roles
            code, reason = await answer(client, rpc, bearer(token_of(f"only {role}")))
            assert (code is StatusCode.PERMISSION_DENIED) == (not admitted), (rpc, role)
            assert (reason == "ROLE_REQUIRED") == (not admitted), (rpc, role)


async def test_what_others_said_does_not_exist_for_a_chat_client(place: Place) -> None:
    """A chat-only principal finds no conversation and no turn of another and lists none."""
    async with connected(place.gateway) as owner:
        accepted, _ = await owner.turn("hello")
    async with connected(place.gateway) as client:
        other = Client(client.channel, bearer(token_of("other")))
        conversation, turn = accepted.conversation_id, accepted.turn_id

        async def watched() -> object:
            return await anext(
                aiter(
                    other.chat.Watch(
                        chat_pb2.WatchRequest(conversation_id=conversation),
                        metadata=other.metadata,
                        timeout=30,
                    )
                )
            )

        for attempt in (
            other.turn("mine", conversation),
            other.events(conversation),
            watched(),
            other.chat.GetConversation(
                chat_pb2.GetConversationRequest(conversation_id=conversation),
                metadata=other.metadata,
                timeout=30,
            ),
            other.chat.GetTurn(chat_pb2.GetTurnRequest(turn_id=turn), metadata=other.metadata, timeout=30),
            other.chat.CancelTurn(
                chat_pb2.CancelTurnRequest(turn_id=turn), metadata=other.metadata, timeout=30
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await attempt
            assert caught.value.code() is StatusCode.NOT_FOUND
            (info,) = infos(caught.value)
            assert info.reason == "RESOURCE_NOT_FOUND"
        listed = await other.chat.ListConversations(
            chat_pb2.ListConversationsRequest(), metadata=other.metadata, timeout=30
        )
        assert not listed.conversations
        own, events = await other.turn("mine")
        assert events[-1].turn_finished.state
        listed = await other.chat.ListConversations(
            chat_pb2.ListConversationsRequest(), metadata=other.metadata, timeout=30
        )
        assert [item.conversation_id for item in listed.conversations] == [own.conversation_id]


async def test_a_token_that_is_revoked_stops_working_within_seconds(place: Place) -> None:
    """Revoking a token that is in use ends its use, without a restart."""
    async with connected(place.gateway) as client:
        rpc = next(rpc for rpc in await served(client) if rpc.method == "ListConversations")
        lapsing = bearer(token_of("lapses"))
        assert (await answer(client, rpc, lapsing))[0] is StatusCode.OK
        spend(place.database, "lapses", "revoked_at")
        deadline = asyncio.get_running_loop().time() + CHECKED_AFTER + 25
        while (await answer(client, rpc, lapsing))[0] is StatusCode.OK:
            assert asyncio.get_running_loop().time() < deadline, "the token still works"
            await asyncio.sleep(0.1)
        assert await answer(client, rpc, lapsing) == (StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")


async def test_the_operators_token_is_private_and_not_in_the_database(place: Place) -> None:
    """The token file has mode 600; database and log hold at most its digest."""
    file = place.gateway.state_dir / "operator.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.gateway.state_dir.stat().st_mode) == 0o700
    token = place.gateway.token.encode()
    for kept in place.gateway.state_dir.glob("tyrum.sqlite3*"):
        assert token not in kept.read_bytes()
    assert token.decode() not in place.gateway.log
