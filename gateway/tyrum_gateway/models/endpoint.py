"""Where a configured model is reached, and with which key."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class KeyUnavailable(Exception):
    """The key cannot be had now; the text names its source only."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One configured model."""

    name: str
    """In the configuration."""
    model: str
    """As its server calls it."""
    base_url: str
    secret: str
    """Name of the secret that holds the key."""
    key: Callable[[], str] = field(repr=False)
    """Fetches the key; may block; raises `KeyUnavailable`."""
    agent: str
    """The user agent."""
    max_output_tokens: int | None
    ca_file: Path | None = None
    """Authorities of the server; None: those of the operating system."""
