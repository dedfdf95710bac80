"""Turns the providers of the settings into what the host starts.

Invariant: the file alone decides; a secret is resolved when the host projects it, not before.
"""

from collections.abc import Callable

from tyrum_gateway.config.secrets import SecretReference, SecretUnavailable, SecretValue
from tyrum_gateway.config.settings import ProviderSettings, Settings
from tyrum_provider_host import DeploymentMode, ProviderSpec, Secret, SecretSource, SecretUnresolved, Trust

Reveal = Callable[[SecretReference], SecretValue]
"""Resolves a reference; raises SecretUnavailable when it leads nowhere."""


def provider_specs(settings: Settings, reveal: Reveal = SecretReference.resolve) -> tuple[ProviderSpec, ...]:
    """Describe every provider of the file to the host, in the order of the file.

    Args:
        settings: The checked file.
        reveal: Called when the host projects a secret, with its reference.
    """
    return tuple(_spec(provider, settings, reveal) for provider in settings.providers.values())


def _spec(provider: ProviderSettings, settings: Settings, reveal: Reveal) -> ProviderSpec:
    return ProviderSpec(
        name=provider.name,
        kind=provider.kind,
        command=provider.command,
        config=provider.config,
        secrets={slot: _source(settings.secrets[name], reveal) for slot, name in provider.secrets.items()},
        implementation_range=provider.implementation_version,
        trust=Trust(provider.trust),
        deployment=DeploymentMode(provider.deployment),
        start_timeout=provider.start_timeout.total_seconds(),
        artifact_sha256=provider.artifact_sha256,
        trust_claims=provider.trust_claims,
    )


def _source(reference: SecretReference, reveal: Reveal) -> SecretSource:
    def resolve() -> Secret:
        try:
            return Secret(reveal(reference).reveal())
        except SecretUnavailable as error:
            raise SecretUnresolved(str(error)) from None

    return resolve
