"""Declares to be another party's remote service, which the isolation contract does not admit."""

from dataclasses import replace

from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import DeploymentMode, Trust, run


class RemoteProvider(GoodProvider):
    """Deviates in its definition."""

    definition = replace(DEFINITION, deployment_mode=DeploymentMode.REMOTE, trust=Trust.EXTERNAL_PARTY)


def main() -> int:
    """Serve."""
    return run(RemoteProvider())
