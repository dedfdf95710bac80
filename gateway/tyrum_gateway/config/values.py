"""The kinds of single values in the configuration file, each with its check.

Invariant: a check says what belongs there and never repeats what is there.
"""

import ipaddress
import json
import pathlib
import re
import urllib.parse
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, JsonValue, StringConstraints
from pydantic_core import PydanticCustomError

NAME = r"[a-z][a-z0-9_-]{0,62}"
SECRET_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"  # noqa: S105 - a pattern
_VERSION_RANGE = re.compile(
    r"\s*(>=|<=|==|!=|>|<)\s*[0-9]+(\.[0-9]+){0,2}\s*(,\s*(>=|<=|==|!=|>|<)\s*[0-9]+(\.[0-9]+){0,2}\s*)*"
)
_LONGEST_SOCKET_PATH = 107
_LARGEST_CONFIG = 64 * 1024
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")
_TCP = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")


def split_tcp(text: str) -> tuple[str, int]:
    """Split `HOST:PORT` or `[HOST]:PORT`.

    Raises:
        ValueError: it has another form or the port is out of range.
    """
    match = _TCP.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise ValueError("expected HOST:PORT, such as `127.0.0.1:7460`")
    return match[1].strip("[]"), int(match[2])


def is_loopback(host: str) -> bool:
    """Tell whether a host is certainly this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _url(text: str, example: str) -> tuple[urllib.parse.SplitResult, str]:
    try:
        url = urllib.parse.urlsplit(text)
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    plain = text.isascii() and text.isprintable() and " " not in text
    if not host or not _HOST.fullmatch(host) or port == 0 or not plain:
        raise PydanticCustomError("url", "expected an address, such as `{example}`", {"example": example})
    return url, host


def _base_url(text: str) -> str:
    url, host = _url(text, "https://models.example.org/v1")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise PydanticCustomError("url", "an address has no user, query or fragment; the key is a secret")
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(host)):
        raise PydanticCustomError(
            "url", "expected https, or http on loopback: the key travels with a request"
        )
    return text.rstrip("/")


def _proxy_url(text: str) -> str:
    if "@" in text:  # first of all: a password may make anything of what follows
        why = "no user or password here: put `USER:PASSWORD` into a secret, and name it as `proxy_login`"
        raise PydanticCustomError("url", "{why}", {"why": why})
    url, _ = _url(text, "http://proxy.example.org:3128")
    if url.scheme not in {"http", "https"}:
        raise PydanticCustomError("url", "expected http or https; other proxies are not supported")
    if url.path not in {"", "/"} or "?" in text or "#" in text:
        raise PydanticCustomError("url", "a proxy has a scheme, a host and a port, and nothing behind them")
    return text.rstrip("/")


def _address(text: str) -> str:
    try:
        split_tcp(text)
    except ValueError as error:
        raise PydanticCustomError("address", "{why}", {"why": str(error)}) from None
    return text


def _loopback(text: str) -> str:
    if not is_loopback(split_tcp(_address(text))[0]):
        raise PydanticCustomError(
            "not_loopback", "only this machine may ask here: use 127.0.0.1 or [::1], or leave it out"
        )
    return text


def _no_home(text: str, instead: str = "write the whole path") -> None:
    if text.startswith("~"):
        why = f"`~` is not resolved here: {instead}, or ./~ for a name that begins so"
        raise PydanticCustomError("path", "{why}", {"why": why})


def _absolute(text: str) -> str:
    _no_home(text)
    path = pathlib.PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or "\0" in text:
        raise PydanticCustomError("path", "expected an absolute path without `..`")
    return "/" + str(path).lstrip("/")


def _socket_path(text: str) -> str:
    if len(text.encode()) > _LONGEST_SOCKET_PATH:
        raise PydanticCustomError("path", "a socket path has at most 107 bytes")
    return _absolute(text)


def _inside(text: str) -> str:
    _no_home(text, "write a relative path")
    path = pathlib.PurePosixPath(text)
    if not text or path.is_absolute() or ".." in path.parts or "\0" in text:
        raise PydanticCustomError("path", "expected a relative path without `..`")
    return str(path)


def _file(text: str) -> str:
    _no_home(text)
    if not text or "\0" in text:
        raise PydanticCustomError("path", "expected the path of a file")
    return text


def _program(text: str) -> str:
    _no_home(text)
    if not text or "\0" in text or ("/" in text and not text.startswith("/")):
        raise PydanticCustomError("path", "expected a program's name without `/`, or an absolute path")
    return text


def _command(items: list[str]) -> list[str]:
    _program(items[0])
    if any("\0" in item for item in items):
        raise PydanticCustomError("nul", "an argument holds a NUL character")
    return items


def _small(config: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if len(json.dumps(config, ensure_ascii=False, separators=(",", ":")).encode()) > _LARGEST_CONFIG:
        raise PydanticCustomError("too_large", "at most 64 KiB as JSON")
    return config


def _version_range(text: str) -> str:
    if not _VERSION_RANGE.fullmatch(text):
        raise PydanticCustomError("version_range", "expected a version range, such as `>=0.1,<1`")
    return text


def _whole(value: object) -> object:
    # A literal compares by equality alone, which `true` and `1.0` pass.
    if type(value) is not int:
        raise PydanticCustomError("version", "not a whole number")
    return value


def _any_true(value: bool) -> bool:  # noqa: FBT001 - pydantic's calling convention
    if not value:
        raise PydanticCustomError("any", "only `true` means something")
    return value


Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
SecretName = Annotated[str, StringConstraints(pattern=f"^{SECRET_NAME}$")]
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,64}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
RuleId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\r\n]+$")]
PrincipalName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._@-]{0,63}$")]
Address = Annotated[str, AfterValidator(_address)]
FilePath = Annotated[str, AfterValidator(_file)]
SocketPath = Annotated[str, AfterValidator(_socket_path)]
LoopbackAddress = Annotated[str, AfterValidator(_loopback)]
RelativePath = Annotated[str, AfterValidator(_inside)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
ProxyUrl = Annotated[str, AfterValidator(_proxy_url)]
Command = Annotated[list[str], AfterValidator(_command)]
ProviderConfig = Annotated[dict[str, JsonValue], AfterValidator(_small)]
VersionRange = Annotated[str, AfterValidator(_version_range)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{64}$")]
FormatVersion = Annotated[Literal[1], BeforeValidator(_whole)]
AlwaysTrue = Annotated[bool, AfterValidator(_any_true)]
