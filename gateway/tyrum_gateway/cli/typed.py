"""Names of fields in errors of the gateway, as whoever typed the command knows them.

Invariant: an option is named only when the command that runs has it; other fields keep the contract's name.
"""

from typer._click import Parameter
from typer._click.globals import get_current_context
from typer.core import TyperArgument

PARAMETERS = {
    "after_sequence": "after",
    "approval_id": "approval",
    "conversation_id": "conversation",
    "expires_in_seconds": "expires_in",
    "filter.conversation_id": "conversation",
    "filter.principal_id": "principal",
    "filter.since": "since",
    "filter.state": "state",
    "filter.until": "until",
    "kind_prefix": "kind",
    "override_expires_in": "expires",
    "override_id": "override",
    "override_pattern": "pattern",
    "override_pattern.argv": "pattern",
    "override_pattern.env": "env",
    "page_size": "limit",
    "principal": "name",
    "roles": "role",
    "run_id": "run",
    "token_id": "token",
    "turn_id": "turn",
}
"""Parameters of commands by the field that they fill; any other field is filled by its namesake."""


def typed(field: str) -> str:
    """Name what fills a field: the option or the argument of the running command, else the field itself."""
    context = get_current_context(silent=True)
    wanted = PARAMETERS.get(field, field)
    for parameter in context.command.params if context is not None else ():
        if parameter.name == wanted:
            return _shown(parameter) or field
    return field


def _shown(parameter: Parameter) -> str:
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or ""
    return max(parameter.opts, key=len)


LISTS = {
    "approval": "approvals list --all",
    "conversation": "conversations list",
    "override": "policy overrides list --all",
    "run": "runs list",
    "turn": "runs list",
    "token": "principals tokens list --all",
    "name": "principals list --all",
}
"""Commands that list what a parameter names."""


def listing() -> str:
    """Name the command that lists what the running command was given; empty when it was given nothing so."""
    context = get_current_context(silent=True)
    given = context.params if context is not None else {}
    return next((f"tyrum {command}" for name, command in LISTS.items() if given.get(name)), "")
