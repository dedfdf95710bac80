"""An approval is answered at most once, by somebody who saw what it is about."""

import hashlib
from datetime import timedelta

import pytest

from tests.domain.samples import ALICE, BOB, EXPIRES, NOW, approval, fresh
from tyrum_gateway.domain.approval import Approval, Outcome, Subject, answer, close
from tyrum_gateway.domain.errors import AlreadyResolved, VersionConflict
from tyrum_gateway.domain.ids import CallId
from tyrum_gateway.domain.principal import Principal


def say(
    question: Approval, *, approve: bool, digest: str | None = None, principal: Principal = ALICE
) -> Approval:
    """Answer, by default with the digest that was shown."""
    shown = question.subject.digest if digest is None else digest
    return answer(question, approve=approve, digest=shown, reason="because", principal=principal, now=NOW)


@pytest.fixture
def question() -> Approval:
    """A pending approval."""
    return approval(fresh(CallId))


@pytest.mark.parametrize("approve", [True, False])
def test_the_answer_is_recorded_with_its_author(question: Approval, approve: bool) -> None:
    """Who answered, how they were known, when and why are part of the resolution."""
    resolution = say(question, approve=approve).resolution
    assert resolution is not None
    assert resolution.outcome is (Outcome.APPROVED if approve else Outcome.DENIED)
    assert (resolution.principal_id, resolution.resolved_by) == (ALICE.principal_id, "Alice")
    assert (resolution.method, resolution.reason, resolution.resolved_at) == ("token", "because", NOW)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("other", [True, False])
def test_only_the_first_answer_counts(question: Approval, first: bool, second: bool, other: bool) -> None:
    """The same answer of the same person again changes nothing; any other is told which one stands."""
    answered = say(question, approve=first)
    if first == second and not other:
        assert say(answered, approve=second) is answered
        return
    with pytest.raises(AlreadyResolved) as caught:
        say(answered, approve=second, principal=BOB if other else ALICE)
    assert caught.value.context["state"] == (Outcome.APPROVED if first else Outcome.DENIED)


@pytest.mark.parametrize("digest", ["", "sha256:0", "SHA256:" + "0" * 64])
def test_approving_needs_the_digest_of_what_was_shown(question: Approval, digest: str) -> None:
    """Without the exact digest nothing is approved."""
    with pytest.raises(VersionConflict):
        say(question, approve=True, digest=digest)


def test_denying_needs_no_digest_but_no_wrong_one(question: Approval) -> None:
    """A denial may leave the digest out; a digest of something else is a mistake worth telling."""
    assert say(question, approve=False, digest="").resolution is not None
    with pytest.raises(VersionConflict):
        say(question, approve=False, digest="sha256:0")


def test_nobody_answers_after_the_expiry(question: Approval) -> None:
    """From the moment of expiry the approval takes no answer."""
    digest = question.subject.digest
    for late in (EXPIRES, EXPIRES + timedelta(seconds=1)):
        with pytest.raises(AlreadyResolved, match="expired"):
            answer(question, approve=True, digest=digest, reason="", principal=ALICE, now=late)
    last = EXPIRES - timedelta(microseconds=1)
    assert answer(question, approve=True, digest=digest, reason="", principal=ALICE, now=last).resolution


def test_closing_never_overrides_an_answer(question: Approval) -> None:
    """What a human said stands when the kernel closes the question, and a closed one takes no answer."""
    answered = say(question, approve=True)
    assert close(answered, Outcome.CANCELLED, NOW, "cancelled") is answered
    closed = close(question, Outcome.EXPIRED, NOW, "late")
    with pytest.raises(AlreadyResolved):
        say(closed, approve=True)


def test_equal_subjects_have_equal_digests() -> None:
    """The digest follows the JSON alone, under a tag of its own."""
    assert Subject("{}", "a").digest == Subject("{}", "b").digest
    assert Subject("{}", "a").digest != Subject('{"a":1}', "a").digest
    expected = hashlib.sha256(b"tyrum.approval.1\n{}").hexdigest()
    assert Subject("{}", "").digest == f"sha256:{expected}"
