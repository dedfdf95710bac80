"""An approval is answered at most once, by somebody who saw what it is about."""

import hashlib
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.domain.samples import ALICE, BOB, EXPIRES, NOW, approval, fresh
from tyrum_gateway.domain.approval import Approval, Outcome, Receipt, Subject, answer, close, receipt
from tyrum_gateway.domain.errors import AlreadyResolved, KernelBug, RequesterMayNotApprove, VersionConflict
from tyrum_gateway.domain.ids import CallId, OverrideId
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


def test_the_answer_is_recorded_with_its_origin(question: Approval) -> None:
    """From where the human answered is part of the resolution."""
    resolution = say(question, approve=True, principal=replace(ALICE, origin="unix uid 7")).resolution
    assert resolution is not None
    assert resolution.origin == "unix uid 7"


def test_permitting_for_good_is_another_answer_than_approving_once(question: Approval) -> None:
    """Who approved once does not get a permission by asking again; who permitted for good has approved."""
    digest = question.subject.digest

    def again(answered: Approval, override_id: OverrideId | None) -> Approval:
        return answer(
            answered,
            approve=True,
            digest=digest,
            reason="",
            principal=ALICE,
            now=NOW,
            override_id=override_id,
        )

    once = say(question, approve=True)
    with pytest.raises(AlreadyResolved):
        again(once, fresh(OverrideId))
    always = again(question, fresh(OverrideId))
    assert always.resolution is not None
    assert always.resolution.override_id is not None
    assert again(always, fresh(OverrideId)) is always
    assert again(always, None) is always


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_the_requester_may_be_kept_from_approving(question: Approval, approve: bool, own: bool) -> None:
    """Where the operator wants a second person, who asked can deny, and only somebody else can approve."""
    principal = ALICE if own else BOB
    assert question.requested_by == ALICE.principal_id

    def respond() -> Approval:
        return answer(
            question,
            approve=approve,
            digest=question.subject.digest,
            reason="",
            principal=principal,
            now=NOW,
            requester_may_approve=False,
        )

    if own and approve:
        with pytest.raises(RequesterMayNotApprove):
            respond()
    else:
        assert respond().resolution is not None


def test_a_receipt_is_an_approval_of_this_call_with_this_subject_in_time(question: Approval) -> None:
    """A call begins on its own approval, for what was shown, and for as long as the question was open."""
    approved = say(question, approve=True)
    open_for = EXPIRES - NOW
    call, subject = question.call_id, question.subject
    assert receipt(approved, call, subject, NOW) is Receipt.VALID
    assert receipt(approved, call, subject, NOW + open_for - timedelta(microseconds=1)) is Receipt.VALID
    assert receipt(approved, call, subject, NOW + open_for) is Receipt.LAPSED
    assert receipt(approved, call, Subject('{"other":1}', ""), NOW) is Receipt.CHANGED


@pytest.mark.parametrize("forged", ["pending", "denied", "expired", "another call"])
def test_no_receipt_no_call(question: Approval, forged: str) -> None:
    """A question without an approval, or the approval of another call, is a bug and never a receipt."""
    match forged:
        case "pending":
            held = question
        case "denied":
            held = say(question, approve=False)
        case "expired":
            held = close(question, Outcome.EXPIRED, NOW, "late")
        case _:
            held = replace(say(question, approve=True), call_id=fresh(CallId))
    with pytest.raises(KernelBug):
        receipt(held, question.call_id, question.subject, NOW)
