"""Answers that no server of good faith sends: each fails the step in our own words, and nothing else."""

import pytest

from tests.models.prompts import CALL, said
from tests.models.remote import SECRET, asking, failure_of, remote, step_of
from tests.support.model_server import PROTOCOLS, ModelServer, Refuse, Step
from tyrum_gateway.domain.model import AssistantStep, PastCall, ToolOutput
from tyrum_gateway.models.failures import retry_after

both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
@pytest.mark.parametrize("charset", ["hex", "zlib", "rot13", "idna", "undefined"])
async def test_the_charset_of_an_error_chooses_no_codec(
    server: ModelServer, protocol: str, charset: str
) -> None:
    """An error is read as UTF-8: Python's other codecs raise, or inflate what was bounded."""
    refuse = Refuse(503, {"content-type": f"text/plain; charset={charset}"}, body="{busy")
    server.play("go", Step(fault=refuse))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert failure.retryable
    assert "HTTP 503" in failure.public


@both
async def test_an_empty_key_is_a_failure_that_names_the_secret(server: ModelServer, protocol: str) -> None:
    """A key file that was emptied fails the step before any request, with its secret's name."""
    server.play("go", Step())
    _, failure = await failure_of(remote(server, protocol, "go", key=""))
    assert not failure.retryable
    assert f"`{SECRET}`" in failure.public
    assert server.calls("go") == 0


@both
@pytest.mark.parametrize(
    "arguments",
    ['{"a":"\\ud800"}', '{"\\udfff":1}', '{"a":1e999}', '{"a":' + "[" * 100 + "]" * 100 + "}"],
    ids=["half a character", "half a character as key", "infinity", "deep"],
)
async def test_a_call_that_json_cannot_carry_back_does_not_end_its_conversation(
    server: ModelServer, protocol: str, arguments: str
) -> None:
    """What a model wrote into a past call is told as text where no server could be sent it as an object."""
    past = AssistantStep("", (PastCall(CALL, "process.run", arguments),))
    server.play("go", Step(text=("ok",)))
    given = asking(said("list"), past, ToolOutput(CALL, "process.run", "rejected"), said("again"))
    text, _ = await step_of(remote(server, protocol, "go"), given)
    assert text == "ok"
    (request,) = server.requests
    assert "not_json" in str(request.body)


@pytest.mark.parametrize(
    "date",
    [
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999",
        "Mon, 99999999999999999999999 Jan 2024 00:00:00 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
    ],
)
def test_a_date_that_no_calendar_holds_asks_for_nothing(date: str) -> None:
    """`retry-after` with numbers beyond any calendar is no wish, and no error either."""
    assert retry_after({"retry-after": date}) is None
