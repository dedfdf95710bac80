"""How long a failed step waits, and that nothing heavy is loaded for those who need it not."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tyrum_gateway.app.backoff import FIRST_SECONDS, LONGEST_SECONDS, MOST_SECONDS, pause_seconds
from tyrum_gateway.models.failures import retry_after


@pytest.mark.parametrize(
    ("asked", "seconds"), [(0, 0), (2.5, 2.5), (60, 60), (61, LONGEST_SECONDS), (10**9, LONGEST_SECONDS)]
)
def test_a_server_is_left_alone_as_long_as_it_asks_within_bounds(asked: float, seconds: float) -> None:
    """What a server asks for is waited for as it is, and never longer than a minute."""
    assert pause_seconds(1, timedelta(seconds=asked)) == seconds


def test_without_a_wish_the_wait_doubles_within_bounds() -> None:
    """Each failed attempt doubles the wait up to its bound; half of it is chance."""
    for attempt in range(1, 2000):
        longest = min(FIRST_SECONDS * 2.0 ** min(attempt - 1, 10), MOST_SECONDS)
        assert longest / 2 <= pause_seconds(attempt, None) <= longest <= MOST_SECONDS
    assert len({pause_seconds(3, None) for _ in range(20)}) > 1


def test_a_moment_in_time_is_understood() -> None:
    """`retry-after` may be a date; one that has passed asks for no wait."""
    soon = datetime.now(UTC) + timedelta(seconds=100)
    asked = retry_after({"retry-after": format_datetime(soon, usegmt=True)})
    assert asked is not None
    assert timedelta(seconds=50) < asked <= timedelta(seconds=101)
    for nonsense in ("", "soon", "nan", "inf", "-1", "Thu, 99 Foo"):
        assert retry_after({"retry-after": nonsense}) is None


LAZY = """
import sys
import tyrum_gateway.cli.main
import tyrum_gateway.bootstrap.serve
import tyrum_gateway.models.catalog as catalog
catalog.build_model(catalog.Offline())
print(sorted({"openai", "anthropic", "httpx2", "anyio", "opentelemetry"} & set(sys.modules)))
from tyrum_gateway.models.endpoint import Endpoint, Secret
endpoint = Endpoint("m", "m", "http://127.0.0.1:9", Secret("K", lambda: "k"), "a", None)
catalog.build_model(catalog.OpenAi(endpoint))
print(sorted({"openai", "anthropic"} & set(sys.modules)))
"""


def test_an_sdk_is_imported_only_for_a_model_that_needs_it() -> None:
    """Command line, gateway and the other models load neither SDK; a model loads that of its kind."""
    run = subprocess.run(
        [sys.executable, "-c", LAZY], capture_output=True, text=True, timeout=50, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[]", "['openai']"]
