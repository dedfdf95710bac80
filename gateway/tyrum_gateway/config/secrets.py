"""Secrets: references in the operator's file, resolved one at a time, never printed.

Invariant: what `${env:NAME}`, `${file:PATH}` or `${credential:NAME}` stands for appears in no message,
representation or error; only `SecretValue.reveal` hands it out.
"""

import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from tyrum_gateway.config.regular_file import read_regular_file

MAX_SECRET_BYTES = 64 * 1024

_REFERENCE = re.compile(r"\$\{(env|file|credential):([^{}]*)\}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIAL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}")


class SecretUnavailable(Exception):
    """The reference leads to no usable secret; the operator provides it. The text names the source only."""


class SecretValue:
    """A resolved secret; prints as `***` and refuses to be pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret itself, for the one place it is projected to."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not serialised")


class Source(StrEnum):
    """Where a secret comes from."""

    ENV = "env"
    FILE = "file"
    CREDENTIAL = "credential"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret will be found when it is needed."""

    source: Source
    target: str
    """Name of the variable or credential, or absolute path of the file."""
    _environment: Mapping[str, str] = field(repr=False, compare=False)

    @classmethod
    def parse(
        cls, text: str, *, environment: Mapping[str, str], directory: pathlib.Path
    ) -> "SecretReference":
        """Read `${source:target}`; a relative file is looked up in `directory`.

        Raises:
            ValueError: the text is not one whole reference; the message does not repeat it.
        """
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise ValueError(
                "expected a whole reference `${env:NAME}`, `${file:PATH}` or `${credential:NAME}`; "
                "a secret itself does not belong in this file"
            )
        source, target = Source(match[1]), match[2]
        if source is Source.FILE:
            if not target or "\0" in target:
                raise ValueError("`${file:PATH}` needs a path")
            if target.startswith("~"):
                raise ValueError("`~` is not resolved here: write the whole path")
            return cls(source, str(directory / target), environment)
        pattern = _ENV_NAME if source is Source.ENV else _CREDENTIAL_NAME
        if not pattern.fullmatch(target):
            raise ValueError(f"`${{{source}:NAME}}` needs a plain name")
        return cls(source, target, environment)

    def resolve(self) -> SecretValue:
        """Fetch the secret now.

        One trailing line feed of a file or credential is dropped.

        Raises:
            SecretUnavailable: it is missing, empty, unreadable, not UTF-8 or larger than 64 KiB.
        """
        match self.source:
            case Source.ENV:
                value = self._environment.get(self.target)
                if value is None:
                    raise SecretUnavailable(f"environment variable `{self.target}` is not set")
                try:
                    value.encode()
                except UnicodeEncodeError:
                    raise SecretUnavailable(
                        f"environment variable `{self.target}` is not UTF-8 text"
                    ) from None
            case Source.FILE:
                value = _read(pathlib.Path(self.target), f"file `{self.target}`")
            case Source.CREDENTIAL:
                directory = self._environment.get("CREDENTIALS_DIRECTORY")
                if not directory:
                    raise SecretUnavailable(
                        f"credential `{self.target}` needs systemd's LoadCredential=: "
                        "CREDENTIALS_DIRECTORY is not set"
                    )
                value = _read(pathlib.Path(directory) / self.target, f"credential `{self.target}`")
        if not value:
            raise SecretUnavailable(f"{self.source} `{self.target}` is empty")
        return SecretValue(value)


def _read(path: pathlib.Path, name: str) -> str:
    try:
        content = read_regular_file(path, limit=MAX_SECRET_BYTES)
    except OSError as error:
        raise SecretUnavailable(f"{name} cannot be read: {error.strerror}") from None
    if len(content) > MAX_SECRET_BYTES:
        raise SecretUnavailable(f"{name} is larger than {MAX_SECRET_BYTES // 1024} KiB")
    try:
        return content.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"{name} is not UTF-8 text") from None
