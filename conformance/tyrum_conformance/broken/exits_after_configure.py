"""Conforms until `after_ms` (default 1500) after its configuration, then ends with status 3."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tyrum_conformance.broken._base import DEFINITION, GoodProvider
from tyrum_provider_kit import Environment, run


class ExitsAfterConfigure(GoodProvider):
    """Deviates in one member."""

    definition = replace(
        DEFINITION,
        config_schema={
            "type": "object",
            "properties": {"after_ms": {"type": "integer", "minimum": 0, "maximum": 60_000}},
            "additionalProperties": False,
        },
    )

    async def configure(
        self, config: Mapping[str, Any], secrets: Mapping[str, str], environment: Environment
    ) -> str:
        """Set the end."""
        seconds = config.get("after_ms", 1500) / 1000
        asyncio.get_running_loop().call_later(seconds, os._exit, 3)
        return await super().configure(config, secrets, environment)


def main() -> int:
    """Serve."""
    return run(ExitsAfterConfigure())
