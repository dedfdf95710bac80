"""IdentityService over the principals desk: parse, call, convert. A secret is in one answer only."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tyrum.identity.v1 import identity_pb2, identity_pb2_grpc
from tyrum_gateway.app.principals import DEFAULT_LIFE, LONGEST_LIFE, PrincipalDesk
from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.ids import PrincipalId, TokenId
from tyrum_gateway.domain.principal import Account, Role, Token
from tyrum_gateway.rpc import convert
from tyrum_gateway.rpc.guard import caller

_ROLES = {
    Role.CHAT: identity_pb2.ROLE_CHAT,
    Role.APPROVER: identity_pb2.ROLE_APPROVER,
    Role.OPERATOR: identity_pb2.ROLE_OPERATOR,
    Role.AUDITOR: identity_pb2.ROLE_AUDITOR,
    Role.ADMIN: identity_pb2.ROLE_ADMIN,
}
_BY_NUMBER: dict[int, Role] = {number: role for role, number in _ROLES.items()}
_LONGEST_NAME = 64


class IdentityServicer(identity_pb2_grpc.IdentityServiceServicer):
    """Principals and their tokens."""

    def __init__(self, desk: PrincipalDesk) -> None:
        self._desk = desk

    async def WhoAmI(  # noqa: N802 - named by the contract
        self, request: identity_pb2.WhoAmIRequest, context: Any
    ) -> identity_pb2.WhoAmIResponse:
        """Return the caller."""
        me = caller()
        account, token = await self._desk.me(me)
        return identity_pb2.WhoAmIResponse(
            principal=_account(account), token=_token(token), method=me.method, origin=me.origin
        )

    async def CreatePrincipal(  # noqa: N802 - named by the contract
        self, request: identity_pb2.CreatePrincipalRequest, context: Any
    ) -> identity_pb2.CreatePrincipalResponse:
        """Add a principal."""
        account = await self._desk.create(caller(), request.name, _roles(request.roles))
        return identity_pb2.CreatePrincipalResponse(principal=_account(account))

    async def ListPrincipals(  # noqa: N802 - named by the contract
        self, request: identity_pb2.ListPrincipalsRequest, context: Any
    ) -> identity_pb2.ListPrincipalsResponse:
        """Page through principals; the token is the last id of the page before."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        after = PrincipalId.parse(request.page_token, "page_token") if request.page_token else None
        found = await self._desk.accounts(after, size + 1, include_disabled=request.include_disabled)
        principals, more = convert.page(found, size, _account)
        return identity_pb2.ListPrincipalsResponse(
            principals=principals, next_page_token=principals[-1].principal_id if more else ""
        )

    async def SetRoles(  # noqa: N802 - named by the contract
        self, request: identity_pb2.SetRolesRequest, context: Any
    ) -> identity_pb2.SetRolesResponse:
        """Replace a principal's roles."""
        account = await self._desk.set_roles(caller(), _named(request.principal), _roles(request.roles))
        return identity_pb2.SetRolesResponse(principal=_account(account))

    async def DisablePrincipal(  # noqa: N802 - named by the contract
        self, request: identity_pb2.DisablePrincipalRequest, context: Any
    ) -> identity_pb2.DisablePrincipalResponse:
        """End a principal."""
        account = await self._desk.disable(caller(), _named(request.principal))
        return identity_pb2.DisablePrincipalResponse(principal=_account(account))

    async def IssueToken(  # noqa: N802 - named by the contract
        self, request: identity_pb2.IssueTokenRequest, context: Any
    ) -> identity_pb2.IssueTokenResponse:
        """Make a token and return its secret."""
        wanted = _named(request.principal)
        secret, token = await self._desk.issue(
            caller(), wanted, request.label, _life(request.expires_in_seconds)
        )
        return identity_pb2.IssueTokenResponse(secret=secret, token=_token(token))

    async def ListTokens(  # noqa: N802 - named by the contract
        self, request: identity_pb2.ListTokensRequest, context: Any
    ) -> identity_pb2.ListTokensResponse:
        """Page through tokens; the page's token is the last id of the page before."""
        size = convert.page_size(request.page_size, default=50, maximum=200)
        after = TokenId.parse(request.page_token, "page_token") if request.page_token else None
        wanted = _named(request.principal) if request.principal else ""
        found = await self._desk.tokens(wanted, after, size + 1, include_unusable=request.include_unusable)
        tokens, more = convert.page(found, size, _token)
        return identity_pb2.ListTokensResponse(
            tokens=tokens, next_page_token=tokens[-1].token_id if more else ""
        )

    async def RevokeToken(  # noqa: N802 - named by the contract
        self, request: identity_pb2.RevokeTokenRequest, context: Any
    ) -> identity_pb2.RevokeTokenResponse:
        """End a token."""
        token = await self._desk.revoke(caller(), TokenId.parse(request.token_id, "token_id"))
        return identity_pb2.RevokeTokenResponse(token=_token(token))


def _named(text: str) -> str:
    if not 1 <= len(text) <= _LONGEST_NAME:
        raise InvalidRequest("principal", f"must be a name or an id of 1 to {_LONGEST_NAME} characters")
    return text


def _roles(numbers: Iterable[int]) -> frozenset[Role]:
    given = list(numbers)
    if len(given) > len(_BY_NUMBER) or not set(given) <= set(_BY_NUMBER):
        raise InvalidRequest("roles", "must be roles, each once")
    return frozenset(_BY_NUMBER[number] for number in given)


def _life(seconds: int) -> timedelta:
    # Bounded first: larger numbers do not fit into a duration.
    return timedelta(seconds=min(seconds, LONGEST_LIFE.total_seconds() + 1)) if seconds else DEFAULT_LIFE


def _account(account: Account) -> identity_pb2.Principal:
    message = identity_pb2.Principal(
        principal_id=account.principal_id,
        name=account.name,
        roles=sorted(_ROLES[role] for role in account.roles),
        created_at=convert.timestamp(account.created_at),
    )
    if account.disabled_at is not None:
        message.disabled_at.CopyFrom(convert.timestamp(account.disabled_at))
    return message


def _token(token: Token) -> identity_pb2.Token:
    message = identity_pb2.Token(
        token_id=token.token_id,
        principal_id=token.principal_id,
        label=token.label,
        created_at=convert.timestamp(token.created_at),
    )
    if token.expires_at is not None:
        message.expires_at.CopyFrom(convert.timestamp(token.expires_at))
    if token.revoked_at is not None:
        message.revoked_at.CopyFrom(convert.timestamp(token.revoked_at))
    return message
