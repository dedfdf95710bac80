"""Options of `tyrum approvals approve --always` are understood whole or refused by name."""

from datetime import timedelta

import pytest

from tests.support.gateway import RunningGateway
from tyrum.approval.v1.approval_pb2 import ANSWER_APPROVE, ANSWER_APPROVE_ALWAYS, ResolveApprovalRequest
from tyrum_gateway.cli.always import Always, parse
from tyrum_gateway.cli.failure import ExitCode, Failure


def request_of(always: Always) -> ResolveApprovalRequest:
    """Turn an approval into one that permits for good."""
    request = ResolveApprovalRequest(approval_id="appr", answer=ANSWER_APPROVE, digest="sha256:0")
    always.put_into(request)
    assert request.answer == ANSWER_APPROVE_ALWAYS
    return request


def test_without_options_the_gateway_decides() -> None:
    """Neither life nor pattern is sent unless somebody states one."""
    request = request_of(parse("", "", rest=False, env=[]))
    assert not request.HasField("override_expires_in")
    assert not request.HasField("override_pattern")


def test_a_pattern_is_sent_as_it_was_written() -> None:
    """Text, prefixes and any arguments keep their order; life, further arguments and variables are sent."""
    request = request_of(parse("8h", "[status, {prefix: src/}, {any: true}, '5']", rest=True, env=["LANG"]))
    assert request.override_expires_in.ToTimedelta() == timedelta(hours=8)
    pattern = request.override_pattern
    assert [item.WhichOneof("match") for item in pattern.argv] == ["literal", "prefix", "any", "literal"]
    assert (pattern.argv[0].literal, pattern.argv[1].prefix, pattern.argv[3].literal) == (
        "status",
        "src/",
        "5",
    )
    assert (pattern.rest, list(pattern.env)) == (True, ["LANG"])
    none = request_of(parse("", "[]", rest=False, env=[]))
    assert none.HasField("override_pattern")


@pytest.mark.parametrize(
    ("expires", "pattern", "rest", "env", "named"),
    [
        ("soon", "", False, [], "--expires"),
        ("8", "", False, [], "--expires"),
        ("", "", True, [], "--rest"),
        ("400d", "", False, [], "--expires` must be 1 s to 365 days"),
        ("", "", False, ["LANG"], "--env"),
        ("", "[a]", False, ["LANG=C"], "--env"),
        ("", "status", False, [], "--pattern"),
        ("", "[5]", False, [], "--pattern"),
        ("", "[[a]]", False, [], "--pattern"),
        ("", "[{prefix: ''}]", False, [], "--pattern"),
        ("", "[{any: false}]", False, [], "--pattern"),
        ("", "[{any: true, prefix: a}]", False, [], "--pattern"),
        ("", "[{glob: a}]", False, [], "--pattern"),
        ("", "[a", False, [], "--pattern"),
        ("", "[!!python/name:os.system a]", False, [], "--pattern"),
    ],
)
def test_a_mistake_names_its_option(
    expires: str, pattern: str, rest: bool, env: list[str], named: str
) -> None:
    """What is not of its form is a usage error that names the option, and nothing is sent."""
    with pytest.raises(Failure, match=named) as caught:
        parse(expires, pattern, rest=rest, env=env)
    assert caught.value.code is ExitCode.USAGE


def test_its_options_need_always(gateway: RunningGateway) -> None:
    """`--expires` without `--always` is a mistake and not an approval."""
    run = gateway.tyrum("approvals", "approve", f"appr_{'0' * 26}", "--expires", "1d")
    assert run.returncode == ExitCode.USAGE
    assert "--always" in run.stderr
