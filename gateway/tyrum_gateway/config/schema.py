"""The JSON Schema of the configuration file, for editors and linters."""

from typing import Any

from tyrum_gateway.config.model import ConfigFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the schema; references between parts of the file are beyond what it can express."""
    return {"$schema": DIALECT, **ConfigFile.model_json_schema()}
