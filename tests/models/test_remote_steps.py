"""Steps of a model behind HTTP, in both protocols: what counts, and what does not."""

import asyncio
import ipaddress
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.models.remote import SECRET, asking, failure_of, remote, step_of
from tests.support.model_server import (
    KEY,
    PROTOCOLS,
    Call,
    Cut,
    Ending,
    Garbage,
    Goodbye,
    Midway,
    ModelServer,
    Quirk,
    Refuse,
    Step,
    Usage,
)
from tyrum_gateway.domain.errors import (
    AnswerCutOff,
    AnswerRefused,
    ModelUnavailable,
    PromptTooLong,
)
from tyrum_gateway.domain.model import CallRequest, StepEnd
from tyrum_gateway.domain.usage import NOTHING
from tyrum_gateway.domain.usage import Usage as Used

LISTING = Call("process_run", '{"argv": ["ls", "-l", "ü"]}')
OTHER = Call("process_run", '{"argv": ["pwd"]}')
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
@pytest.mark.parametrize(
    "step",
    [
        Step(text=("Let me ", "lööк."), calls=(LISTING,)),
        Step(text=("Let me lööк.",), calls=(LISTING,), fragments=40, pings=1),
        Step(text=("Let me lööк.",), calls=(LISTING,), drip=3),
    ],
    ids=["whole", "in pieces", "dripping"],
)
async def test_text_and_calls_arrive_whole_however_they_are_sent(
    server: ModelServer, protocol: str, step: Step
) -> None:
    """Text comes as deltas, a call only whole, under the kernel's name, with what the server says it used."""
    server.play("go", step)
    text, end = await step_of(remote(server, protocol, "go"))
    assert text == "Let me lööк."
    assert end == StepEnd((CallRequest("process.run", LISTING.arguments),), Used(11, 7))


@both
@pytest.mark.parametrize("interleaved", [False, True])
async def test_pieces_of_several_calls_are_kept_apart(
    server: ModelServer, protocol: str, interleaved: bool
) -> None:
    """Calls keep their order and their arguments, also when their pieces alternate."""
    server.play("go", Step(calls=(LISTING, OTHER, LISTING), fragments=5, interleaved=interleaved))
    _, end = await step_of(remote(server, protocol, "go"))
    assert [call.arguments for call in end.calls] == [
        LISTING.arguments,
        OTHER.arguments,
        LISTING.arguments,
    ]


@pytest.mark.parametrize(
    ("quirk", "fragments"),
    [(Quirk.NO_IDS, 4), (Quirk.ONE_INDEX, 4), (Quirk.NO_INDEX, 4), (Quirk.WHOLE, 1)],
)
async def test_compatible_servers_tell_calls_apart_in_their_own_ways(
    server: ModelServer, quirk: Quirk, fragments: int
) -> None:
    """Calls told apart by index alone, by id alone, or by coming whole are the same calls."""
    server.play("go", Step(calls=(LISTING, OTHER), fragments=fragments, quirk=quirk))
    _, end = await step_of(remote(server, "openai", "go"))
    assert [call.arguments for call in end.calls] == [LISTING.arguments, OTHER.arguments]


@pytest.mark.parametrize("quirk", [Quirk.NONE, Quirk.NO_IDS, Quirk.ONE_INDEX, Quirk.NO_INDEX])
async def test_calls_without_arguments_are_told_apart_too(server: ModelServer, quirk: Quirk) -> None:
    """Where an id or an index tells calls apart, nothing needs to be read from their arguments."""
    server.play("go", Step(calls=(Call("process_run", ""), Call("process_run", "")), quirk=quirk))
    _, end = await step_of(remote(server, "openai", "go"))
    assert [call.arguments for call in end.calls] == ["{}", "{}"]


@both
async def test_a_call_without_arguments_has_an_empty_object(server: ModelServer, protocol: str) -> None:
    """Nothing at all, which both protocols allow, is an object without members."""
    server.play("go", Step(calls=(Call("process_run", ""),)))
    _, end = await step_of(remote(server, protocol, "go"))
    assert end.calls == (CallRequest("process.run", "{}"),)


@both
@pytest.mark.parametrize("name", ["rm_rf", "processrun"])
async def test_a_name_that_was_not_given_out_is_no_tool(
    server: ModelServer, protocol: str, name: str
) -> None:
    """A call of an unknown tool is handed on under its own name, for the kernel to reject."""
    server.play("go", Step(calls=(Call(name, "{}"),)))
    _, end = await step_of(remote(server, protocol, "go"))
    assert end.calls == (CallRequest(name, "{}"),)


@both
async def test_usage_that_is_not_told_is_unknown(server: ModelServer, protocol: str) -> None:
    """A server that tells no usage leaves it open; nothing is guessed."""
    server.play("go", Step(text=("hi",), usage=None), Step(text=("hi",), usage=Usage(0, 0)))
    model = remote(server, protocol, "go")
    assert (await step_of(model))[1].usage == Used(None, None)
    assert (await step_of(model))[1].usage == NOTHING


MALFORMED = ['{"argv": ["ls"', "[1]", '"text"', "{'argv': 1}", '{"a": NaN}', "[" * 20_000]


@both
@pytest.mark.parametrize("arguments", MALFORMED)
async def test_malformed_arguments_are_no_step(server: ModelServer, protocol: str, arguments: str) -> None:
    """A step with a call that is no JSON object yields no call at all; a silent one may be tried again."""
    calls = (LISTING, Call("process_run", arguments))
    server.play("go", Step(calls=calls), Step(text=("I will",), calls=calls))
    model = remote(server, protocol, "go")
    _, silent = await failure_of(model)
    text, spoken = await failure_of(model)
    assert "no JSON object" in silent.public
    assert (silent.retryable, spoken.retryable, text) == (True, False, "I will")
    assert silent.usage == Used(11, 7)


CUTS = [(goodbye, after) for goodbye in Goodbye for after in (0, 1, None)]


@both
@pytest.mark.parametrize(("goodbye", "after"), CUTS)
async def test_a_stream_without_its_end_is_no_step(
    server: ModelServer, protocol: str, goodbye: Goodbye, after: int | None
) -> None:
    """Whatever had come, a cut yields no call, and is tried again only when nothing at all had come."""
    server.play("go", Step(calls=(LISTING,), fragments=4, fault=Cut(after, goodbye)))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert "broke off" in failure.public or "cannot be reached" in failure.public
    assert not failure.usage.complete or after is None or "reached" in failure.public
    # A reset may overtake the little that was sent before it.
    assert failure.retryable is (after == 0) or goodbye is Goodbye.RESET


@both
async def test_a_cut_after_text_keeps_the_text_and_is_final(server: ModelServer, protocol: str) -> None:
    """What was said before the cut has been seen, so the attempt is not repeated."""
    server.play("go", Step(text=("Half a ", "sentence"), fault=Cut(1)))
    text, failure = await failure_of(remote(server, protocol, "go"))
    assert text == "Half a "
    assert not failure.retryable


@both
@pytest.mark.parametrize("fault", [Midway(0), Garbage(0), Garbage(0, b"[1]"), Garbage(0, b'"[DONE]"')])
async def test_an_error_within_the_stream_is_no_step(
    server: ModelServer, protocol: str, fault: Midway | Garbage
) -> None:
    """An error event, or what is none of the protocol, fails the step; of an error is told what it says."""
    later: Midway | Garbage = Midway(1) if isinstance(fault, Midway) else Garbage(1, fault.data)
    server.play("go", Step(text=("a", "b"), fault=fault), Step(text=("a", "b"), fault=later))
    model = remote(server, protocol, "go")
    _, early = await failure_of(model)
    text, late = await failure_of(model)
    assert (early.retryable, late.retryable, text) == (True, False, "a")
    assert ("It says: CANARY" in early.public) is isinstance(fault, Midway)


@both
async def test_an_error_that_will_not_pass_is_final(server: ModelServer, protocol: str) -> None:
    """A request that the server calls invalid within the stream is not sent again."""
    server.play("go", Step(text=("a",), fault=Midway(0, "invalid_request_error")))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert not failure.retryable


@both
@pytest.mark.parametrize(
    ("ending", "kinds"),
    [
        (Ending.LENGTH, {AnswerCutOff}),
        (Ending.REFUSAL, {AnswerRefused}),
        (Ending.OVERFLOW, {PromptTooLong, AnswerCutOff}),
        (Ending.PAUSE, {ModelUnavailable}),
    ],
)
async def test_ends_that_are_no_answers_have_their_own_failures(
    server: ModelServer, protocol: str, ending: Ending, kinds: set[type[ModelUnavailable]]
) -> None:
    """A limit, a refusal, a full context and a pause fail the step with its reason and run nothing."""
    if (protocol, ending) == ("openai", Ending.PAUSE):
        return  # there it is a reason to end that nobody knows
    server.play("go", Step(text=("Well",), calls=(LISTING,), ending=ending))
    text, failure = await failure_of(remote(server, protocol, "go"))
    assert type(failure) in kinds
    assert text == "Well"
    assert not failure.retryable
    assert failure.usage == Used(11, 7)


@both
@pytest.mark.parametrize(
    ("refuse", "retryable", "seconds"),
    [
        (Refuse(429, {"retry-after": "7"}), True, 7.0),
        (Refuse(429, {"retry-after": "9", "retry-after-ms": "1500"}), True, 1.5),
        (Refuse(429, {"retry-after": "soon"}), True, None),
        (Refuse(429, {"retry-after": "-5"}), True, None),
        (Refuse(429, {"retry-after": "1e400"}), True, None),
        (Refuse(429, {"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}), True, 0.0),
        (Refuse(529, {"retry-after": "0.5"}), True, 0.5),
        (Refuse(500), True, None),
        (Refuse(503), True, None),
        (Refuse(500, {"content-length": "1000000000"}, body="x" * 70_000), True, None),
        (Refuse(500, {"x-should-retry": "false"}), False, None),
        (Refuse(400, body="{}"), False, None),
        (Refuse(404), False, None),
        (Refuse(422), False, None),
        (Refuse(302, {"location": "http://127.0.0.1:9/elsewhere"}), False, None),
    ],
)
async def test_a_status_says_whether_and_when_to_come_back(
    server: ModelServer, protocol: str, refuse: Refuse, retryable: bool, seconds: float | None
) -> None:
    """The SDK repeats nothing; what the kernel may repeat carries the time that the server asks for."""
    server.play("go", Step(fault=refuse))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert f"HTTP {refuse.status}" in failure.public
    assert "`main`" in failure.public
    asked = failure.retry_after
    assert (failure.retryable, None if asked is None else asked.total_seconds()) == (retryable, seconds)
    assert failure.usage == NOTHING
    assert server.calls("go") == 1


@both
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_names_the_secret_and_shows_nothing(
    server: ModelServer, protocol: str, status: int
) -> None:
    """The message says which model and which secret; neither the key nor the server's words are in it."""
    server.play("go", Step(fault=Refuse(status)))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert not failure.retryable
    assert SECRET in failure.public
    assert KEY not in f"{failure!r} {failure.context} {failure.__cause__!r} {failure.__context__!r}"
    assert "CANARY" not in failure.public


@both
async def test_another_key_is_refused_by_the_server(server: ModelServer, protocol: str) -> None:
    """The key that is sent is the one of the secret, whatever the environment holds."""
    server.play("go", Step(text=("hi",)))
    _, failure = await failure_of(remote(server, protocol, "go", key="sk-other"))
    assert "HTTP 401" in failure.public


@both
@pytest.mark.parametrize("key", ["sk\nX-Evil: 1", "sk k", "schlüssel", "sk\0"])
async def test_a_key_that_cannot_be_sent_is_not_shown(server: ModelServer, protocol: str, key: str) -> None:
    """A key with characters that no header takes fails the step before anything is sent."""
    server.play("go", Step(text=("hi",)))
    _, failure = await failure_of(remote(server, protocol, "go", key=key))
    assert SECRET in failure.public
    assert key not in f"{failure.public} {failure!r} {failure.__context__!r}"
    assert server.calls("go") == 0


@both
async def test_a_prompt_that_does_not_fit_is_told_as_such(server: ModelServer, protocol: str) -> None:
    """The one error whose body is understood: the user can do something about it."""
    server.play("go", Step(fault=Refuse(400)), Step(fault=Refuse(413)))
    model = remote(server, protocol, "go")
    for _ in range(2):
        _, failure = await failure_of(model)
        assert isinstance(failure, PromptTooLong)
        assert not failure.retryable
        assert "CANARY" not in failure.public


@both
@pytest.mark.parametrize(
    ("base_url", "part"),
    [
        ("http://127.0.0.1:9", "cannot be reached: `127.0.0.1:9` refuses connections"),
        ("http://name.invalid:81/v1", "the host name of `name.invalid:81` cannot be resolved (DNS)"),
    ],
    ids=["refused", "DNS"],
)
async def test_a_server_that_cannot_be_reached_is_told_with_its_address_and_why(
    server: ModelServer, protocol: str, base_url: str, part: str
) -> None:
    """What failed on the way is told, and another attempt is made."""
    _, failure = await failure_of(remote(server, protocol, "go", base_url=base_url))
    assert part in failure.public
    assert failure.retryable
    assert failure.context["address"] in failure.public


@both
async def test_a_server_with_an_unknown_certificate_is_not_asked(
    server: ModelServer, protocol: str, tmp_path: Path
) -> None:
    """A certificate that the system does not trust ends the step before the key is sent, and for good."""
    asked: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1))
        writer.close()

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=self_signed(tmp_path))
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        model = remote(server, protocol, "go", base_url=f"https://127.0.0.1:{port}")
        _, failure = await failure_of(model)
    assert "not trusted" in failure.public
    assert not failure.retryable
    assert asked == []


def self_signed(directory: Path) -> ssl.SSLContext:
    """Make the TLS of a server whose certificate nobody has issued but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    file = directory / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@both
async def test_a_compressed_answer_is_not_read(server: ModelServer, protocol: str) -> None:
    """Compression was not asked for and would undo every bound: such an answer is refused unread."""
    server.play("go", Step(fault=Refuse(500, {"content-encoding": "gzip"}, body="x")))
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert "not in the protocol" in failure.public
    assert not failure.retryable


@both
async def test_a_step_can_be_given_up_at_any_time(server: ModelServer, protocol: str) -> None:
    """Cancelling the iteration ends the request at once."""
    server.play("go", Step(text=("Wait",), barrier="hold"))
    taking = asyncio.ensure_future(step_of(remote(server, protocol, "go"), asking()))
    await server.reached("hold")
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(taking, 20)
    server.release("hold")


@both
@pytest.mark.parametrize(
    ("step", "part"),
    [
        (Step(calls=(LISTING,) * 65), "more than 64 calls"),
        (Step(calls=(Call("process_run", json.dumps({"a": "x" * 1024 * 1024})),)), "more than 1048576 bytes"),
        (Step(calls=(Call("n" * 1024 * 1024, "{}"),)), "more than 1048576 bytes"),
        (Step(fault=Garbage(0, b"x" * 9 * 1024 * 1024)), "not in the protocol"),
    ],
    ids=["calls", "arguments", "name", "event"],
)
async def test_what_a_server_sends_is_bounded(
    server: ModelServer, protocol: str, step: Step, part: str
) -> None:
    """Too many calls, too long ones, and an event that never ends are given up while they come."""
    server.play("go", step)
    _, failure = await failure_of(remote(server, protocol, "go"))
    assert part in failure.public
