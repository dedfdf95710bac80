"""Identity over the wire: who is who, who sees whose conversations, and what ends when a right ends."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc import StatusCode

from tests.support import configs
from tests.support.client import DEADLINE, Client, connected, info_of
from tests.support.gateway import RunningGateway, serving
from tyrum.approval.v1 import approval_pb2
from tyrum.chat.v1 import chat_pb2, event_pb2
from tyrum.identity.v1 import identity_pb2

ROLES = {
    "chat": identity_pb2.ROLE_CHAT,
    "approver": identity_pb2.ROLE_APPROVER,
    "operator": identity_pb2.ROLE_OPERATOR,
    "auditor": identity_pb2.ROLE_AUDITOR,
    "admin": identity_pb2.ROLE_ADMIN,
}
DAY = 24 * 3600


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for the file; every test makes principals of its own."""
    directory = tmp_path_factory.mktemp("identity")
    with serving(directory, configs.write(directory)) as running:
        yield running


async def create(client: Client, name: str, *roles: str) -> identity_pb2.Principal:
    """Add a principal."""
    request = identity_pb2.CreatePrincipalRequest(name=name, roles=[ROLES[role] for role in roles])
    answer = await client.identity.CreatePrincipal(request, metadata=client.metadata, timeout=DEADLINE)
    return answer.principal


async def issue(client: Client, name: str, label: str = "test") -> identity_pb2.IssueTokenResponse:
    """Give a principal a token."""
    request = identity_pb2.IssueTokenRequest(principal=name, label=label, expires_in_seconds=DAY)
    return await client.identity.IssueToken(request, metadata=client.metadata, timeout=DEADLINE)


def bearing(client: Client, secret: str) -> Client:
    """The same connection as somebody else."""
    return Client(client.channel, (("authorization", f"Bearer {secret}"),))


async def somebody(client: Client, name: str, *roles: str) -> Client:
    """A new principal's client."""
    await create(client, name, *roles)
    return bearing(client, (await issue(client, name)).secret)


async def whoami(client: Client) -> identity_pb2.WhoAmIResponse:
    """Ask who the caller is."""
    return await client.identity.WhoAmI(
        identity_pb2.WhoAmIRequest(), metadata=client.metadata, timeout=DEADLINE
    )


async def refused(attempt: Awaitable[object]) -> tuple[StatusCode, str]:
    """Code and reason of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await attempt
    return caught.value.code(), info_of(caught.value).reason


async def test_whoami_tells_what_the_gateway_knows(gateway: RunningGateway) -> None:
    """A principal without any role learns its name, its token by id and label, and from where it came."""
    async with connected(gateway) as admin:
        created = await create(admin, "nobody-special")
        issued = await issue(admin, "nobody-special", "first laptop")
        me = await whoami(bearing(admin, issued.secret))
        assert me.principal == created
        assert me.token == issued.token
        assert (me.token.label, me.method, me.origin) == ("first laptop", "token", "unix socket")
        assert issued.token.expires_at.seconds - issued.token.created_at.seconds == DAY
        operator = await whoami(admin)
        assert operator.principal.name == "operator"
        assert not operator.token.HasField("expires_at")


async def test_a_revoked_token_fails_at_the_next_call(gateway: RunningGateway) -> None:
    """No call is answered after the answer to RevokeToken, whatever was remembered; nor after disabling."""
    async with connected(gateway) as admin:
        await create(admin, "lapsing", "chat")
        first, second = await issue(admin, "lapsing", "a"), await issue(admin, "lapsing", "b")
        await whoami(bearing(admin, first.secret))
        request = identity_pb2.RevokeTokenRequest(token_id=first.token.token_id)
        await admin.identity.RevokeToken(request, metadata=admin.metadata, timeout=DEADLINE)
        gone = (StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")
        assert await refused(whoami(bearing(admin, first.secret))) == gone
        await whoami(bearing(admin, second.secret))
        disable = identity_pb2.DisablePrincipalRequest(principal="lapsing")
        await admin.identity.DisablePrincipal(disable, metadata=admin.metadata, timeout=DEADLINE)
        assert await refused(whoami(bearing(admin, second.secret))) == gone


async def take_token(admin: Client, name: str, token_id: str) -> None:
    """Revoke the token."""
    del name
    request = identity_pb2.RevokeTokenRequest(token_id=token_id)
    await admin.identity.RevokeToken(request, metadata=admin.metadata, timeout=DEADLINE)


async def take_account(admin: Client, name: str, token_id: str) -> None:
    """Disable the principal."""
    del token_id
    request = identity_pb2.DisablePrincipalRequest(principal=name)
    await admin.identity.DisablePrincipal(request, metadata=admin.metadata, timeout=DEADLINE)


async def take_role(admin: Client, name: str, token_id: str) -> None:
    """Leave the principal with another role."""
    del token_id
    request = identity_pb2.SetRolesRequest(principal=name, roles=[ROLES["approver"]])
    await admin.identity.SetRoles(request, metadata=admin.metadata, timeout=DEADLINE)


@pytest.mark.parametrize(
    ("take", "expected"),
    [
        (take_token, (StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")),
        (take_account, (StatusCode.UNAUTHENTICATED, "TOKEN_INVALID")),
        (take_role, (StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")),
    ],
)
async def test_a_running_watch_ends_with_the_right_to_it(
    gateway: RunningGateway,
    take: Callable[[Client, str, str], Awaitable[None]],
    expected: tuple[StatusCode, str],
) -> None:
    """A stream that is open when token, account or role is taken ends at once, with the reason."""
    name = f"watcher-{take.__name__}".replace("_", "-")
    async with connected(gateway) as admin:
        await create(admin, name, "chat")
        issued = await issue(admin, name)
        watcher = bearing(admin, issued.secret)
        accepted, _ = await watcher.turn("hello")
        watch = watcher.chat.Watch(
            chat_pb2.WatchRequest(conversation_id=accepted.conversation_id),
            metadata=watcher.metadata,
            timeout=DEADLINE,
        )
        first = await anext(aiter(watch))
        assert first.items[0].event.sequence == 1
        await take(admin, name, issued.token.token_id)

        async def drained() -> None:
            async for _ in watch:
                pass

        assert await refused(drained()) == expected


@asynccontextmanager
async def watching(client: Client, conversation_id: str) -> Any:
    """The first item of a watch."""
    watch = client.chat.Watch(
        chat_pb2.WatchRequest(conversation_id=conversation_id), metadata=client.metadata, timeout=DEADLINE
    )
    try:
        yield (await anext(aiter(watch))).items[0]
    finally:
        watch.cancel()


async def reads(client: Client, accepted: chat_pb2.Accepted) -> list[str]:
    """Which of the reading calls show a conversation and its turn to a client."""
    conversation, turn = accepted.conversation_id, accepted.turn_id

    async def watched() -> bool:
        async with watching(client, conversation) as first:
            return bool(first.event.conversation_id == conversation)

    async def got() -> bool:
        request = chat_pb2.GetConversationRequest(conversation_id=conversation)
        answer = await client.chat.GetConversation(request, metadata=client.metadata, timeout=DEADLINE)
        return answer.conversation.conversation_id == conversation

    async def listed() -> bool:
        request = chat_pb2.ListConversationsRequest(page_size=200)
        answer = await client.chat.ListConversations(request, metadata=client.metadata, timeout=DEADLINE)
        return conversation in {item.conversation_id for item in answer.conversations}

    async def events() -> bool:
        return bool(await client.events(conversation))

    async def got_turn() -> bool:
        request = chat_pb2.GetTurnRequest(turn_id=turn)
        answer = await client.chat.GetTurn(request, metadata=client.metadata, timeout=DEADLINE)
        return answer.turn.turn_id == turn

    shown = []
    for name, attempt in (
        ("Watch", watched),
        ("GetConversation", got),
        ("ListConversations", listed),
        ("ListEvents", events),
        ("GetTurn", got_turn),
    ):
        try:
            if await attempt():
                shown.append(name)
        except grpc.aio.AioRpcError as error:
            if error.code() not in {StatusCode.NOT_FOUND, StatusCode.PERMISSION_DENIED}:
                raise
    return shown


async def test_who_sees_whose_conversations(gateway: RunningGateway) -> None:
    """Chat clients see their own; operators, auditors and administrators see all; approvers see none."""
    every = ["Watch", "GetConversation", "ListConversations", "ListEvents", "GetTurn"]
    async with connected(gateway) as admin:
        owner = await somebody(admin, "owner", "chat")
        accepted, _ = await owner.turn("hello")
        assert await reads(owner, accepted) == every
        for role, shown in (
            ("chat", []),
            ("approver", []),
            ("operator", every),
            ("auditor", every),
            ("admin", every),
        ):
            other = await somebody(admin, f"other-{role}", role)
            assert await reads(other, accepted) == shown, role


async def test_who_cancels_whose_turns(gateway: RunningGateway) -> None:
    """Somebody else's turn is cancelled by operators and administrators, and by nobody else."""
    async with connected(gateway) as admin:
        owner = await somebody(admin, "canceller-owner", "chat")
        for role, expected in (
            ("chat", (StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")),
            ("approver", (StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")),
            ("auditor", (StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")),
            ("operator", None),
            ("admin", None),
        ):
            other = await somebody(admin, f"canceller-{role}", role)
            accepted, asked = await asking(owner)
            request = chat_pb2.CancelTurnRequest(turn_id=accepted.turn_id, reason="enough")

            async def cancel(
                other: Client = other, request: chat_pb2.CancelTurnRequest = request
            ) -> event_pb2.TurnState.ValueType:
                answer = await other.chat.CancelTurn(request, metadata=other.metadata, timeout=DEADLINE)
                return answer.turn.state

            if expected is None:
                assert await cancel() == event_pb2.TURN_STATE_CANCELLED
            else:
                assert await refused(cancel()) == expected
            assert asked


async def test_nobody_speaks_in_the_conversation_of_another(gateway: RunningGateway) -> None:
    """Whoever may see it is refused as not its owner, for others it does not exist; nothing is changed."""
    async with connected(gateway) as admin:
        owner = await somebody(admin, "spoken-to", "chat")
        accepted, before = await owner.turn("hello")
        for roles, expected in (
            (["chat"], (StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")),
            (["chat", "auditor"], (StatusCode.PERMISSION_DENIED, "NOT_OWNER")),
            (["chat", "operator"], (StatusCode.PERMISSION_DENIED, "NOT_OWNER")),
            (["chat", "admin"], (StatusCode.PERMISSION_DENIED, "NOT_OWNER")),
        ):
            other = await somebody(admin, "speaker-" + "-".join(roles), *roles)
            assert await refused(other.turn("run this", accepted.conversation_id)) == expected
        assert await owner.events(accepted.conversation_id, accepted.sequence) == before


async def test_the_owner_sees_and_cancels_what_another_sent_before_that_was_refused(
    gateway: RunningGateway,
) -> None:
    """A turn in one's conversation that a former version took from another is shown, and can be ended."""
    async with connected(gateway) as admin:
        owner = await somebody(admin, "owns-old-turns", "chat")
        other = await somebody(admin, "sent-old-turns", "chat")
        accepted, _ = await asking(owner)
        sender = (await whoami(other)).principal.principal_id
        with sqlite3.connect(gateway.state_dir / "tyrum.sqlite3") as connection:
            connection.execute(
                "UPDATE turns SET principal_id = ? WHERE turn_id = ?", (sender, accepted.turn_id)
            )
        connection.close()
        assert await reads(owner, accepted) == await reads(admin, accepted)
        request = chat_pb2.CancelTurnRequest(turn_id=accepted.turn_id)
        ended = await owner.chat.CancelTurn(request, metadata=owner.metadata, timeout=DEADLINE)
        assert ended.turn.state == event_pb2.TURN_STATE_CANCELLED


async def test_an_auditor_who_chats_only_looks_at_the_conversations_of_others(
    gateway: RunningGateway,
) -> None:
    """The roles `chat` and `auditor` together cancel only what they began themselves."""
    async with connected(gateway) as admin:
        owner = await somebody(admin, "audited", "chat")
        auditor = await somebody(admin, "auditor-who-chats", "chat", "auditor")
        accepted, _ = await asking(owner)
        request = chat_pb2.CancelTurnRequest(turn_id=accepted.turn_id)
        cancel = auditor.chat.CancelTurn(request, metadata=auditor.metadata, timeout=DEADLINE)
        assert await refused(cancel) == (StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")
        own, _ = await asking(auditor)
        request = chat_pb2.CancelTurnRequest(turn_id=own.turn_id)
        ended = await auditor.chat.CancelTurn(request, metadata=auditor.metadata, timeout=DEADLINE)
        assert ended.turn.state == event_pb2.TURN_STATE_CANCELLED


async def asking(owner: Client) -> tuple[chat_pb2.Accepted, str]:
    """Send a message whose turn waits for an approval; return it and the approval's id."""
    accepted = chat_pb2.Accepted()
    async for item in owner.send("ask"):
        if item.HasField("accepted"):
            accepted = item.accepted
        if item.event.HasField("approval_requested"):
            return accepted, item.event.approval_requested.approval_id
    raise AssertionError("nothing was asked")


async def test_who_sees_what_waits_for_a_human(gateway: RunningGateway) -> None:
    """Approvers, operators, auditors and administrators see everybody's questions; chat clients see none."""
    async with connected(gateway) as admin:
        owner = await somebody(admin, "asker", "chat")
        _, approval_id = await asking(owner)
        request = approval_pb2.ListApprovalsRequest(page_size=200)
        for role in ("approver", "operator", "auditor", "admin"):
            other = await somebody(admin, f"inbox-{role}", role)
            answer = await other.approvals.ListApprovals(request, metadata=other.metadata, timeout=DEADLINE)
            assert approval_id in {item.approval_id for item in answer.approvals}, role
        denied = (StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")
        assert (
            await refused(owner.approvals.ListApprovals(request, metadata=owner.metadata, timeout=DEADLINE))
            == denied
        )
        approver = await somebody(admin, "answers", "approver")
        resolved = await approver.resolve(approval_id, approve=False, reason="no")
        assert (resolved.resolved_by, resolved.method) == ("answers", "token")


async def test_lists_show_no_secret_and_go_on_where_they_ended(gateway: RunningGateway) -> None:
    """Principals and tokens are listed page by page; nothing in any answer or in the log authenticates."""
    async with connected(gateway) as admin:
        await create(admin, "paged", "chat")
        issued = [await issue(admin, "paged", f"number {number}") for number in range(5)]
        seen: list[str] = []
        page_token = ""
        while True:
            request = identity_pb2.ListTokensRequest(principal="paged", page_size=2, page_token=page_token)
            page = await admin.identity.ListTokens(request, metadata=admin.metadata, timeout=DEADLINE)
            seen += [token.token_id for token in page.tokens]
            assert not any(item.secret in str(page) for item in issued)
            page_token = page.next_page_token
            if not page_token:
                break
        assert seen == [item.token.token_id for item in issued]
        names: list[str] = []
        while True:
            listing = identity_pb2.ListPrincipalsRequest(page_size=1, page_token=page_token)
            found = await admin.identity.ListPrincipals(listing, metadata=admin.metadata, timeout=DEADLINE)
            names += [principal.name for principal in found.principals]
            page_token = found.next_page_token
            if not page_token:
                break
        assert names.count("paged") == 1
        assert names[0] == "operator"
        assert not any(item.secret in gateway.log for item in issued)


async def test_refusals_of_the_service(tmp_path: Path) -> None:
    """Taken names, the last administrator, disabled and unknown principals and full quotas have reasons."""
    with serving(tmp_path) as gateway:
        await _refusals(gateway)


async def _refusals(gateway: RunningGateway) -> None:
    async with connected(gateway) as admin:
        await create(admin, "taken")
        assert await refused(create(admin, "taken")) == (StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
        last = (StatusCode.FAILED_PRECONDITION, "LAST_ADMIN")
        assert await refused(take_account(admin, "operator", "")) == last
        assert await refused(take_role(admin, "operator", "")) == last
        me = await whoami(admin)
        assert await refused(take_token(admin, "", me.token.token_id)) == last
        await take_account(admin, "taken", "")
        assert await refused(issue(admin, "taken")) == (StatusCode.FAILED_PRECONDITION, "PRINCIPAL_DISABLED")
        assert await refused(issue(admin, "unknown")) == (StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")
        await create(admin, "full")
        for number in range(64):
            await issue(admin, "full", f"number {number}")
        assert await refused(issue(admin, "full")) == (StatusCode.RESOURCE_EXHAUSTED, "QUOTA")
        wrong = identity_pb2.CreatePrincipalRequest(name="role", roles=[99])  # type: ignore[list-item]
        assert await refused(
            admin.identity.CreatePrincipal(wrong, metadata=admin.metadata, timeout=DEADLINE)
        ) == (StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")


async def test_an_open_watch_of_others_is_left_alone(gateway: RunningGateway) -> None:
    """Ending one principal's streams ends nobody else's."""
    async with connected(gateway) as admin:
        stays = await somebody(admin, "stays", "chat")
        accepted, _ = await stays.turn("hello")
        watch = stays.chat.Watch(
            chat_pb2.WatchRequest(conversation_id=accepted.conversation_id),
            metadata=stays.metadata,
            timeout=DEADLINE,
        )
        items = aiter(watch)
        await anext(items)
        await somebody(admin, "goes", "chat")
        await take_account(admin, "goes", "")
        again, _ = await stays.turn("again", accepted.conversation_id)
        async with asyncio.timeout(DEADLINE):
            async for response in items:
                if any(item.event.turn_id == again.turn_id for item in response.items):
                    break
        watch.cancel()
