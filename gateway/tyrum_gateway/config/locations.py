"""Where a gateway keeps its state, its sockets and its configuration file.

A flag wins over the environment (TYRUM_STATE_DIR, TYRUM_CONFIG), and that over the default. Nothing here
selects a provider: only the file does.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from tyrum_gateway.config.load import quickstart_path


class _Environment(BaseSettings):
    """The variables that are read; an empty one counts as not set."""

    model_config = SettingsConfigDict(env_prefix="TYRUM_", env_ignore_empty=True, extra="ignore", frozen=True)

    state_dir: Path | None = None
    config: Path | None = None


@dataclass(frozen=True, slots=True)
class Locations:
    """The places of one gateway; none is created or checked here."""

    state_dir: Path
    """Absolute. Database, operator token, providers' state."""
    runtime_dir: Path
    """Absolute and short. Sockets; differs between gateways of one user with different state directories."""
    config_file: Path
    """The operator's file, or the packaged quickstart."""


def locate(*, state_dir: Path | None = None, config_file: Path | None = None) -> Locations:
    """Find the places of a gateway, `state_dir` and `config_file` being what flags said."""
    environment = _Environment()
    default = _default_state_dir()
    state = (state_dir or environment.state_dir or default).absolute()
    runtime = _runtime_base()
    if state != default:
        runtime /= hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    return Locations(state, runtime, config_file or environment.config or quickstart_path())


def _default_state_dir() -> Path:
    return Path("/var/lib/tyrum") if os.geteuid() == 0 else Path.home() / ".local/state/tyrum"


def _runtime_base() -> Path:
    if os.geteuid() == 0:
        return Path("/run/tyrum")
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session.startswith("/"):
        return Path(session) / "tyrum"
    return Path(tempfile.gettempdir()) / f"tyrum-{os.geteuid()}"
