"""Conforms, and cannot work without the secret `api_key`."""

from dataclasses import replace

from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import SecretSlot, run


class NeedsSecret(GoodProvider):
    """Deviates in its definition."""

    definition = replace(
        DEFINITION, secret_slots=(SecretSlot("api_key", required=True, purpose="opens the backend"),)
    )


def main() -> int:
    """Serve."""
    return run(NeedsSecret())
