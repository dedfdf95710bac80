"""Logs are JSON lines on one stream, and never hold a secret."""

import base64
import io
import json
import logging
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from tyrum_gateway.app.identity import new_token
from tyrum_gateway.telemetry.logging import OWN, configure_logging
from tyrum_gateway.telemetry.redaction import MASK, Redactor

SECRET = "s3cr3t-value"


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Leave the process's logging as it was found."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    own = {name: logging.getLogger(name).level for name in OWN}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in own.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


@pytest.fixture
def stream() -> io.StringIO:
    """Where events go."""
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Read the events."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_are_json_lines_with_their_fields(stream: io.StringIO) -> None:
    """An event has its name, level, time in UTC and fields; less severe ones are left out."""
    configure_logging(Redactor(), stream=stream)
    log = structlog.get_logger("tyrum.test")
    log.debug("unseen")
    log.info("turn_ended", turn="turn_1", steps=3)
    (event,) = lines(stream)
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "turn_ended", "level": "info", "turn": "turn_1", "steps": 3}


def test_libraries_take_the_same_road(stream: io.StringIO) -> None:
    """Records of the standard library are JSON lines that name their logger, and are redacted too."""
    redactor = Redactor()
    redactor.register([SECRET])
    configure_logging(redactor, stream=stream)
    logging.getLogger("tyrum_provider_host.supervisor").info("said %s", SECRET)
    logging.getLogger("alembic.runtime").info("unseen")
    logging.getLogger("alembic.runtime").warning("seen")
    ours, theirs = lines(stream)
    assert (ours["logger"], ours["level"]) == ("tyrum_provider_host.supervisor", "info")
    assert ours["event"] == f"said {MASK}"
    assert (theirs["logger"], theirs["event"]) == ("alembic.runtime", "seen")


def test_what_the_host_says_of_a_provider_names_its_instance(stream: io.StringIO) -> None:
    """Records of the provider host carry provider, instance and generation as fields of their own."""
    configure_logging(Redactor(), stream=stream, console=False)
    extra = {"provider": "local", "instance": "inst_1", "generation": 2, "args_of": "not ours"}
    logging.getLogger("tyrum_provider_host.supervisor").warning("provider %s: gone", "local", extra=extra)
    (line,) = lines(stream)
    assert (line["provider"], line["instance"], line["generation"]) == ("local", "inst_1", 2)
    assert "args_of" not in line


def test_tokens_of_the_gateway_are_masked_unregistered(stream: io.StringIO) -> None:
    """What looks like a bearer token of a gateway never reaches the log, though nobody registered it."""
    configure_logging(Redactor(), stream=stream, console=False)
    secret = new_token()
    structlog.get_logger("tyrum").info("said", text=f"Bearer {secret}.", nested={"a": [secret]})
    assert secret not in stream.getvalue()
    assert MASK in stream.getvalue()


@pytest.mark.parametrize("console", [False, True])
def test_registered_secrets_never_appear(stream: io.StringIO, console: bool) -> None:
    """A secret is masked in the event, in nested fields, in keys, in other objects and in tracebacks."""
    redactor = Redactor()
    redactor.register([SECRET, "shorter"])
    configure_logging(redactor, stream=stream, console=console)
    log = structlog.get_logger("tyrum.test")
    event = f"x{SECRET}y"
    log.info(event, a=[SECRET, {"b": (SECRET,)}], c={SECRET: 1}, d=ValueError(SECRET), e=SECRET.encode())
    try:
        raise ValueError(SECRET)
    except ValueError:
        log.exception("failed")
    written = stream.getvalue()
    assert SECRET not in written
    assert "Traceback" in written
    assert written.count(MASK) >= 6


def test_fields_named_like_secrets_are_masked_whole(stream: io.StringIO) -> None:
    """Whatever a field called `token`, `Authorization` or the like holds is not written, at any depth."""
    configure_logging(Redactor(), stream=stream)
    structlog.get_logger("tyrum.t").info(
        "call", token="abc", request={"Authorization": ["Bearer abc"], "X-Api-Key": "abc"}, count=1
    )
    (event,) = lines(stream)
    assert event["request"] == {"Authorization": MASK, "X-Api-Key": MASK}
    assert (event["token"], event["count"]) == (MASK, 1)


def test_secrets_that_contain_each_other_leave_nothing(stream: io.StringIO) -> None:
    """Of two secrets where one begins the other, the longer one is masked whole."""
    redactor = Redactor()
    redactor.register(["abcd"])
    redactor.register(["abcdefgh", "abc", ""])
    assert redactor.text("abcdefgh abcd abc") == f"{MASK} {MASK} abc"


@pytest.mark.parametrize(
    "quoted",
    [
        pytest.param(repr, id="repr"),
        pytest.param(json.dumps, id="json"),
        pytest.param(lambda secret: json.dumps(secret, ensure_ascii=False), id="json of any letter"),
        pytest.param(urllib.parse.quote_plus, id="form"),
        pytest.param(lambda secret: urllib.parse.quote(secret, safe=""), id="url"),
        pytest.param(lambda secret: base64.b64encode(secret.encode()).decode(), id="base64"),
        pytest.param(lambda secret: base64.b64encode(f"u:{secret}".encode()).decode(), id="after two"),
        pytest.param(
            lambda secret: base64.urlsafe_b64encode(f"user:{secret}:x".encode()).decode(), id="url64"
        ),
        pytest.param(lambda secret: secret.splitlines()[1], id="a line"),
    ],
)
def test_a_secret_is_masked_also_where_others_quote_it(quoted: Callable[[str], str]) -> None:
    """Escaped, in a URL, in base64 with a name before it, or one line of several: nothing of it is left."""
    secret = "s?3>cr\u00e9t '\"\\+/\nand a second line\n"
    redactor = Redactor()
    redactor.register([secret])
    shown = redactor.text(f"<{quoted(secret)}>")
    assert MASK in shown
    assert len(shown) <= len("<>") + len(MASK) + 12, shown
    assert redactor.text("and a second thing") == "and a second thing"


def test_configuring_twice_writes_once(stream: io.StringIO) -> None:
    """The last configuration counts alone."""
    configure_logging(Redactor(), stream=io.StringIO())
    configure_logging(Redactor(), stream=stream)
    structlog.get_logger("tyrum.t").warning("once")
    assert len(lines(stream)) == 1


def test_module_loggers_follow_a_later_configuration(stream: io.StringIO) -> None:
    """A logger that was made at import time is configured by whoever assembles the process."""
    log = structlog.get_logger("tyrum.early")
    configure_logging(Redactor(), stream=stream)
    log.info("late")
    assert lines(stream)[0]["event"] == "late"


def test_the_room_itself_costs_the_command_line_nothing() -> None:
    """Importing the package does not load the logging library."""
    probe = "import sys, tyrum_gateway.telemetry; print('structlog' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("console", [False, True])
def test_what_a_terminal_would_obey_is_written_as_escapes(stream: io.StringIO, console: bool) -> None:
    """Escape sequences and overrides in an event, a field or a traceback reach neither terminal nor file."""
    hostile = "\x1b]0;owned\x07\x9b2J\u202e"
    configure_logging(Redactor(), stream=stream, console=console)
    structlog.get_logger("tyrum.t").warning(hostile, reason=hostile, nested=[hostile])
    logging.getLogger("tyrum_provider_host.t").warning("said %s", hostile)
    try:
        raise ValueError(hostile)
    except ValueError:
        structlog.get_logger("tyrum.t").exception("failed")
    written = stream.getvalue()
    assert [character for character in written if not character.isprintable() and character != "\n"] == []
    assert written.count("owned") >= 5


def test_no_text_of_others_looks_like_an_event_of_its_own(stream: io.StringIO) -> None:
    """On a terminal, line breaks in a record, a field or an error begin no line as events do."""
    forged = "x\n2026-11-30T00:00:00Z [info     ] approval_resolved"
    configure_logging(Redactor(), stream=stream, console=True)
    logging.getLogger("tyrum_provider_host.t").warning("said %s", forged)
    structlog.get_logger("tyrum.t").warning("told", reason=forged)
    try:
        raise ValueError(forged)
    except ValueError:
        structlog.get_logger("tyrum.t").exception("failed")
    written = stream.getvalue()
    assert written.count("approval_resolved") >= 3
    assert sum(line.startswith("2026-11-30T00") for line in written.splitlines()) == 0
    assert "\n    Traceback (most recent call last):\n" in written
