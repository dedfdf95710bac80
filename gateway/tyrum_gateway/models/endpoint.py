"""Where a configured model is reached, with which key, and through which proxy."""

import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_PORTS = {"http": 80, "https": 443}


class KeyUnavailable(Exception):
    """A secret cannot be had now; the text names its source only."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret of the configuration."""

    name: str
    fetch: Callable[[], str] = field(repr=False)
    """Fetches it; may block; raises `KeyUnavailable`."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A forward proxy, the only way to a model's server."""

    url: str
    """http or https; without credentials."""
    login: Secret | None = None
    """`USER:PASSWORD`."""

    @property
    def tls(self) -> bool:
        """Whether the proxy itself is asked over TLS."""
        return urllib.parse.urlsplit(self.url).scheme == "https"

    @property
    def address(self) -> str:
        """Write `HOST:PORT`, as messages name it."""
        return _address(self.url)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One configured model."""

    name: str
    """In the configuration."""
    model: str
    """As its server calls it."""
    base_url: str
    key: Secret
    agent: str
    """The user agent."""
    max_output_tokens: int | None
    ca_file: Path | None = None
    """Authorities of the server; None: those of the operating system."""
    proxy: Proxy | None = None
    """None: the server is reached directly."""
    mask: Callable[[str], str] = field(default=str, repr=False)
    """Masks the secrets of the gateway in what a server says; those of this model are masked in any case."""

    @property
    def address(self) -> str:
        """Write `HOST:PORT` of the server, as messages name it."""
        return _address(self.base_url)


def _address(of: str) -> str:
    url = urllib.parse.urlsplit(of)
    host = url.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{url.port or _PORTS[url.scheme]}"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What the secrets of a model hold for one request."""

    key: str
    login: tuple[str, str] | None
    """User and password for the proxy; None shows it nothing."""
