"""Profiles whose agents may run more at once than their provider takes.

Invariant: a warning and no more: starts beyond a provider's limit wait in line, in their order.
"""

from collections.abc import Mapping

from tyrum_gateway.config.load import CheckedFile, place_of
from tyrum_gateway.config.problems import Problem

_KEY = "max_concurrent"
"""The limit in the configuration of providers that have one, such as local_spawn."""


def concurrency_warnings(
    checked: CheckedFile, declared: Mapping[str, int] | None = None
) -> tuple[Problem, ...]:
    """List the profiles in use whose provider runs fewer commands at once than turns may run.

    Args:
        checked: A file without problems.
        declared: Limits that providers declared when they were started, by name.

    Raises:
        ConfigProblems: the file cannot be read again.
    """
    content = checked.content
    turns = content.limits.concurrent_turns
    used = content.agents.default.profiles.isolation
    found = []
    for name, profile in content.profiles.isolation.items():
        provider = content.providers.get(profile.provider)
        if name != used or provider is None:
            continue
        limits = [value for value in (provider.config.get(_KEY),) if type(value) is int]
        limits += [limit for limit in ((declared or {}).get(profile.provider),) if limit is not None]
        if limits and turns > min(limits):
            message = (
                f"up to {turns} turns run at once (limits.concurrent_turns), and provider "
                f"`{profile.provider}` runs at most {min(limits)} commands: further ones wait in line"
            )
            keys = ("profiles", "isolation", name, "provider")
            place = place_of(checked.path, *keys)
            found.append(Problem(str(checked.path), place, keys, "concurrency", message))
    return tuple(found)
