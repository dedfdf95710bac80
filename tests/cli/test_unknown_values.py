"""Answers that this version does not understand are shown as what they are, never as a traceback."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tyrum.audit.v1 import audit_pb2
from tyrum.chat.v1.event_pb2 import TurnState
from tyrum.identity.v1.identity_pb2 import Principal, Role
from tyrum_gateway.cli.audit_check import _told
from tyrum_gateway.cli.failure import Failure
from tyrum_gateway.cli.output import as_json, enum_word, moment


def test_an_enum_value_of_a_newer_gateway_is_its_number() -> None:
    """A role or state that this command does not know does not end it."""
    assert enum_word(TurnState, TurnState.TURN_STATE_WAITING_APPROVAL, "TURN_STATE_") == "waiting approval"
    assert enum_word(TurnState, 77, "TURN_STATE_") == "77"
    assert enum_word(Role, 99, "ROLE_") == "99"


@pytest.mark.parametrize("seconds", [10**17, -(10**17), (1 << 63) - 1])
def test_a_time_that_no_calendar_has_is_its_number(seconds: int) -> None:
    """A time far away is shown in seconds; where JSON is asked for, the command fails and says why."""
    assert moment(Timestamp(seconds=seconds)) == str(seconds)
    with pytest.raises(Failure, match="no JSON form"):
        as_json(Principal(created_at=Timestamp(seconds=seconds)))


def test_a_key_that_is_none_is_said() -> None:
    """A gateway that answers with something else than a public key fails the verification with that."""
    answer = audit_pb2.ExportHeadsResponse(public_key="garbage")
    with pytest.raises(Failure, match="no Ed25519 public key"):
        _told(answer.public_key)
