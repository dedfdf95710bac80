"""A provider that refuses its configuration and repeats the secret that it was given in the refusal."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tyrum.error.v1 import error_pb2
from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import Environment, SecretSlot, ServiceError, run


class QuotesSecret(GoodProvider):
    """Deviates in one member."""

    definition = replace(DEFINITION, secret_slots=(SecretSlot("api_key", purpose="is repeated"),))

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Refuse."""
        key = secrets["api_key"]
        raise ServiceError(
            error_pb2.ERROR_REASON_CONFIG_INVALID, f"the server takes no key {key}", {"key": key}
        )


if __name__ == "__main__":
    sys.exit(run(QuotesSecret()))
