"""Which profiles can run nothing, although their provider is admitted, and why.

Invariant: a profile that fails closed is never silent: whatever shows providers shows these (ARCH-29).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tyrum_gateway.config.settings import Settings
from tyrum_provider_host import Lifecycle, ProviderStatus
from tyrum_provider_host.claims import STATED, unproved


@dataclass(frozen=True, slots=True)
class ProfileProblem:
    """An isolation profile whose required claims its provider does not prove."""

    profile: str
    provider: str
    message: str


def profile_problems(settings: Settings, statuses: Iterable[ProviderStatus]) -> list[ProfileProblem]:
    """List the isolation profiles of admitted providers that require what is not PROVED."""
    admitted = {status.name: status for status in statuses if status.lifecycle is Lifecycle.ADMITTED}
    used = {agent.isolation_profile for agent in settings.agents.values()}
    found = []
    for profile in settings.isolation_profiles.values():
        status = admitted.get(profile.provider)
        if status is None or status.posture is None:
            continue
        missing = unproved(profile.required_claims, status.posture, trusted=status.trust_claims)
        if missing:
            what = "them" if len(missing) > 1 else "it"
            effect = "process.run is not offered" if profile.name in used else "nothing can run in it"
            message = (
                f"profile `{profile.name}` requires {', '.join(missing)}; "
                f"provider `{profile.provider}` does not prove {what}: {effect}"
            )
            if STATED in missing.values():
                message += (
                    ". Claims that a provider states are not verified here; `trust_claims: true` of the "
                    "provider takes its word"
                )
            found.append(ProfileProblem(profile.name, profile.provider, message))
    return found
