"""The operator's configuration of local_spawn: its JSON Schema and what the schema cannot say.

Invariant: under root nothing runs before the operator has said as whom commands run (ARCH-29: a boundary is
declared, never assumed).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tyrum_local_spawn.supervision.order import RunAs
from tyrum_local_spawn.supervision.spool import MIN_SPOOL_BYTES
from tyrum_provider_kit import Violation

GATEWAY_USER: Final = "gateway_user"
MAX_CONCURRENT: Final = 256
_MAX_ID: Final = 2**32 - 2
_MEBIBYTE: Final = 1024 * 1024

SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "run_as": {
            "description": "As whom commands run: `gateway_user`, the user of gateway and provider, or"
            " another user as {uid, gid}, which needs root. Required when the provider runs as root.",
            "anyOf": [
                {"const": GATEWAY_USER},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["uid", "gid"],
                    "properties": {
                        "uid": {"type": "integer", "minimum": 1, "maximum": _MAX_ID},
                        "gid": {"type": "integer", "minimum": 1, "maximum": _MAX_ID},
                    },
                },
            ],
        },
        "max_concurrent": {
            "description": "Processes that may run at the same time; further starts get CONCURRENCY_LIMIT.",
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_CONCURRENT,
            "default": 64,
        },
        "spool_bytes_per_stream": {
            "description": "Output kept on disk for each of stdout and stderr: the first quarter as it came,"
            " the rest as a ring of the newest bytes. What does not fit is counted and dropped.",
            "type": "integer",
            "minimum": MIN_SPOOL_BYTES,
            "maximum": 1024 * _MEBIBYTE,
            "default": 8 * _MEBIBYTE,
        },
        "spool_bytes_total": {
            "description": "Output kept on disk for all processes together. A start reserves what both of its"
            " streams may take; when that does not fit it gets QUOTA.",
            "type": "integer",
            "minimum": 2 * MIN_SPOOL_BYTES,
            "maximum": 1024 * 1024 * _MEBIBYTE,
            "default": 2048 * _MEBIBYTE,
        },
        "retention_seconds": {
            "description": "How long records and spools of ended processes are kept if nobody releases them.",
            "type": "integer",
            "minimum": 86400,
            "maximum": 366 * 86400,
            "default": 7 * 86400,
        },
    },
}


@dataclass(frozen=True, slots=True)
class Settings:
    """An applied configuration. Sizes in bytes, `retention` in seconds."""

    run_as: RunAs | None
    """None: commands run as the provider's own user, which is the gateway's."""
    max_concurrent: int
    spool_bytes_per_stream: int
    spool_bytes_total: int
    retention: int


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Read a configuration that satisfies `SCHEMA` and `check_settings`."""
    run_as = config.get("run_as", GATEWAY_USER)
    return Settings(
        run_as=None if run_as == GATEWAY_USER else RunAs(run_as["uid"], run_as["gid"]),
        max_concurrent=_value(config, "max_concurrent"),
        spool_bytes_per_stream=_value(config, "spool_bytes_per_stream"),
        spool_bytes_total=_value(config, "spool_bytes_total"),
        retention=_value(config, "retention_seconds"),
    )


def check_settings(config: Mapping[str, Any], *, uid: int) -> Sequence[Violation]:
    """Find what the schema cannot express; `uid` is the provider's own user."""
    found: list[Violation] = []
    run_as = config.get("run_as")
    if run_as is None and uid == 0:
        found.append(
            Violation(
                "/run_as",
                "root_needs_run_as",
                "the provider runs as root: set run_as to {uid: N, gid: N} of an unprivileged user, or to"
                " gateway_user to run commands as root knowingly",
            )
        )
    if isinstance(run_as, Mapping) and uid not in (0, run_as["uid"]):
        found.append(
            Violation(
                "/run_as/uid",
                "needs_root",
                "only root can run commands as another user: set run_as to gateway_user, or run as root",
            )
        )
    if _value(config, "spool_bytes_total") < 2 * _value(config, "spool_bytes_per_stream"):
        found.append(
            Violation(
                "/spool_bytes_total",
                "holds_one_run",
                "must be at least twice spool_bytes_per_stream, or no process could start",
            )
        )
    return found


def _value(config: Mapping[str, Any], name: str) -> int:
    return int(config.get(name, SCHEMA["properties"][name]["default"]))
