"""The effective configuration: every key with its value and where the value comes from."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel

from tyrum_gateway.config.model import ConfigFile
from tyrum_gateway.config.problems import Path, show_path

REDACTED = "***"

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]


class Origin(StrEnum):
    """Who decided a value."""

    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Effective:
    """One key in force."""

    path: Path
    value: JsonValue
    origin: Origin

    def as_json(self) -> dict[str, JsonValue]:
        """Return the fields that `--output json` prints."""
        return {"path": show_path(self.path), "value": self.value, "origin": self.origin.value}


def effective(content: ConfigFile) -> Iterator[Effective]:
    """List every key in force, in the order of the format; secrets are `***`."""
    for setting in _walk(content, (), Origin.FILE):
        hidden = setting.path[0] == "secrets" and len(setting.path) > 1
        yield Effective(setting.path, REDACTED, setting.origin) if hidden else setting


def _walk(value: object, path: Path, origin: Origin) -> Iterator[Effective]:
    match value:
        case BaseModel():
            for name in type(value).model_fields:
                given = origin is Origin.FILE and name in value.model_fields_set
                yield from _walk(
                    getattr(value, name), (*path, name), Origin.FILE if given else Origin.DEFAULT
                )
        case dict() if value:
            for key, item in value.items():
                yield from _walk(item, (*path, key), origin)
        case list() if any(isinstance(item, BaseModel | dict) for item in value):
            for index, item in enumerate(value):
                yield from _walk(item, (*path, index), origin)
        case None | str() | int() | float() | list() | dict():
            yield Effective(path, value, origin)
        case _:
            raise TypeError(f"no setting has the type `{type(value).__name__}`")
