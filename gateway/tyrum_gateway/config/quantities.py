"""Durations and sizes as operators write them: a whole number and a unit, `30s`, `64MiB`."""

import re
from dataclasses import dataclass
from datetime import timedelta

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_SIZE = re.compile(r"([0-9]{1,9})(B|KiB|MiB|GiB|TiB)")
_DURATION_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_duration(text: str) -> timedelta:
    """Read a duration.

    Raises:
        ValueError: it is not a whole number followed by ms, s, m, h or d.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("expected a duration: a whole number with ms, s, m, h or d, such as `30s`")
    return int(match[1]) * _DURATION_UNITS[match[2]]


def parse_size(text: str) -> int:
    """Read a size in bytes.

    Raises:
        ValueError: it is not a whole number followed by B, KiB, MiB, GiB or TiB.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("expected a size: a whole number with B, KiB, MiB, GiB or TiB, such as `64MiB`")
    return int(match[1]) * _SIZE_UNITS[match[2]]


@dataclass(frozen=True, slots=True)
class Duration:
    """Annotation of a text field that holds a duration within bounds, both included."""

    minimum: str
    maximum: str

    def check(self, value: object) -> str:
        """Return the text unchanged when it is a duration within the bounds."""
        if not isinstance(value, str):
            raise PydanticCustomError("duration", "expected a duration with its unit, such as `30s`")
        try:
            within = parse_duration(self.minimum) <= parse_duration(value) <= parse_duration(self.maximum)
        except ValueError as error:
            raise PydanticCustomError("duration", "{why}", {"why": str(error)}) from None
        if not within:
            bounds = {"minimum": self.minimum, "maximum": self.maximum}
            raise PydanticCustomError("range", "must lie between {minimum} and {maximum}", bounds)
        return value

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "pattern": f"^{_DURATION.pattern}$",
            "x-kind": f"duration, {self.minimum} to {self.maximum}",
        }


@dataclass(frozen=True, slots=True)
class Size:
    """Annotation of a text field that holds a size within bounds, both included."""

    minimum: str
    maximum: str

    def check(self, value: object) -> str:
        """Return the text unchanged when it is a size within the bounds."""
        if not isinstance(value, str):
            raise PydanticCustomError("size", "expected a size with its unit, such as `64MiB`")
        try:
            within = parse_size(self.minimum) <= parse_size(value) <= parse_size(self.maximum)
        except ValueError as error:
            raise PydanticCustomError("size", "{why}", {"why": str(error)}) from None
        if not within:
            bounds = {"minimum": self.minimum, "maximum": self.maximum}
            raise PydanticCustomError("range", "must lie between {minimum} and {maximum}", bounds)
        return value

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "pattern": f"^{_SIZE.pattern}$",
            "x-kind": f"size, {self.minimum} to {self.maximum}",
        }
