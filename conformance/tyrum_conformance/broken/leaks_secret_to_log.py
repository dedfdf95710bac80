"""Prints the secret of its slot `api_key` to standard error, raw and in a log record."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import Environment, SecretSlot, run


class LeaksSecret(GoodProvider):
    """Deviates in one member."""

    definition = replace(DEFINITION, secret_slots=(SecretSlot("api_key", purpose="is leaked"),))

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Leak."""
        secret = secrets.get("api_key", "")
        logging.getLogger(__name__).warning("logged in with %s", secret)
        sys.stderr.write(f"DEBUG api_key={secret}\n")
        sys.stderr.flush()
        return await super().configure(config, secrets, environment)


def main() -> int:
    """Serve."""
    return run(LeaksSecret())
