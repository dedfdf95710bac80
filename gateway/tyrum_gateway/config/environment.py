"""Which configuration file is used: a flag wins over TYRUM_CONFIG, and that over the packaged quickstart.

Nothing but the file selects a provider.
"""

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from tyrum_gateway.config.load import quickstart_path


class _Environment(BaseSettings):
    """The variables that are read; an empty one counts as not set."""

    model_config = SettingsConfigDict(env_prefix="TYRUM_", env_ignore_empty=True, extra="ignore", frozen=True)

    config: Path | None = None


def config_file(flag: Path | None = None) -> Path:
    """Return the file to use, `flag` being what the command line said."""
    return flag or _Environment().config or quickstart_path()
