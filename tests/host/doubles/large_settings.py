"""A conforming provider that takes a long text as its configuration, and insists on getting all of it."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import Environment, run

LENGTH = 60_000
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": LENGTH}},
    "required": ["text"],
    "additionalProperties": False,
}


class Large(GoodProvider):
    """Deviates in its schema."""

    definition = replace(DEFINITION, config_schema=SCHEMA)

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Count."""
        if len(config["text"]) != LENGTH:
            raise ValueError("some of it is missing")
        return await super().configure(config, secrets, environment)


if __name__ == "__main__":
    sys.exit(run(Large()))
