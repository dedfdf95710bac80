"""Who may call what: one table for every RPC the gateway serves.

Invariant: an RPC without a row is refused; health alone is open. A test compares the table with the services.
"""

from dataclasses import dataclass

from tyrum_gateway.domain.principal import Role

CHAT = "tyrum.chat.v1.ChatService"
APPROVAL = "tyrum.approval.v1.ApprovalService"
CATALOG = "tyrum.catalog.v1.CatalogService"
POLICY = "tyrum.policy.v1.PolicyService"
AUDIT = "tyrum.audit.v1.AuditService"
RUNS = "tyrum.run.v1.RunService"
IDENTITY = "tyrum.identity.v1.IdentityService"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1alpha.ServerReflection"


@dataclass(frozen=True, slots=True)
class Open:
    """No credential needed."""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """An authenticated principal that holds one of the roles."""

    roles: frozenset[Role]


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Any authenticated principal, also one without a role."""


Access = Open | Authenticated | AnyOf
"""What an RPC asks of its caller."""

_ANYROLE = AnyOf(frozenset(Role))
_READER = AnyOf(frozenset({Role.CHAT, Role.OPERATOR, Role.AUDITOR, Role.ADMIN}))
_WRITER = AnyOf(frozenset({Role.CHAT}))
_CANCELLER = AnyOf(frozenset({Role.CHAT, Role.OPERATOR, Role.ADMIN}))
_APPROVER = AnyOf(frozenset({Role.APPROVER}))
_INBOX = AnyOf(frozenset({Role.APPROVER, Role.OPERATOR, Role.AUDITOR, Role.ADMIN}))
_REVOKER = AnyOf(frozenset({Role.OPERATOR, Role.ADMIN}))
_AUDITOR = AnyOf(frozenset({Role.AUDITOR, Role.ADMIN}))
_ADMIN = AnyOf(frozenset({Role.ADMIN}))
_CATALOG = AnyOf(frozenset({Role.OPERATOR, Role.AUDITOR, Role.ADMIN}))

TABLE: dict[tuple[str, str], Access] = {
    (CHAT, "SendMessage"): _WRITER,
    (CHAT, "Watch"): _READER,
    (CHAT, "CancelTurn"): _CANCELLER,
    (CHAT, "GetTurn"): _READER,
    (CHAT, "GetConversation"): _READER,
    (CHAT, "ListConversations"): _READER,
    (CHAT, "ListEvents"): _READER,
    (APPROVAL, "ListApprovals"): _INBOX,
    (APPROVAL, "GetApproval"): _INBOX,
    (APPROVAL, "ResolveApproval"): _APPROVER,
    (APPROVAL, "WatchApprovals"): _INBOX,
    (CATALOG, "ListProviders"): _CATALOG,
    (CATALOG, "GetProvider"): _CATALOG,
    (CATALOG, "ListBindings"): _CATALOG,
    (CATALOG, "RestartProvider"): _REVOKER,
    (POLICY, "ListOverrides"): _INBOX,
    (POLICY, "RevokeOverride"): _REVOKER,
    (AUDIT, "ListAudit"): _AUDITOR,
    (AUDIT, "ExportAudit"): _AUDITOR,
    (AUDIT, "ExportHeads"): _AUDITOR,
    (RUNS, "ListRuns"): _READER,
    (RUNS, "GetRun"): _READER,
    (RUNS, "ExportRuns"): _READER,
    (IDENTITY, "WhoAmI"): Authenticated(),
    (IDENTITY, "CreatePrincipal"): _ADMIN,
    (IDENTITY, "ListPrincipals"): _ADMIN,
    (IDENTITY, "SetRoles"): _ADMIN,
    (IDENTITY, "DisablePrincipal"): _ADMIN,
    (IDENTITY, "IssueToken"): _ADMIN,
    (IDENTITY, "ListTokens"): _ADMIN,
    (IDENTITY, "RevokeToken"): _ADMIN,
    (HEALTH, "Check"): Open(),
    (HEALTH, "List"): Open(),
    (HEALTH, "Watch"): Open(),
    (REFLECTION, "ServerReflectionInfo"): _ANYROLE,
}
"""Every RPC of the gateway."""
