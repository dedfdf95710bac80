"""Reasons, codes and the one shape of errors."""

import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support import contract_comments
from tyrum.error.v1 import error_pb2
from tyrum.error.v1.error_pb2 import ErrorReason
from tyrum_provider_kit import ServiceError, field_invalid
from tyrum_provider_kit.errors import CODES, clip, status_of


def _details(status: status_pb2.Status, kind: type) -> list[object]:
    found = []
    for detail in status.details:
        message = kind()
        if detail.Unpack(message):
            found.append(message)
    return found


def test_code_table_is_the_contracts() -> None:
    """Every registered reason has the gRPC code that the comments of the contract state."""
    stated = contract_comments.registered_reasons(contract_comments.load())
    table = {
        ErrorReason.Name(reason).removeprefix("ERROR_REASON_"): code.name for reason, code in CODES.items()
    }
    assert table == stated


def test_unregistered_reasons_cannot_be_raised() -> None:
    """UNSPECIFIED and unknown numbers never reach the wire."""
    for number in (0, 9999):
        with pytest.raises(ValueError, match="not a registered reason"):
            ServiceError(ErrorReason.ValueType(number), "no")


@pytest.mark.parametrize("reason", CODES)
def test_every_error_has_one_error_info(reason: ErrorReason.ValueType) -> None:
    """Whatever the reason, there is one ErrorInfo, and capacity errors say when to retry."""
    status = status_of(ServiceError(reason, "no", {"field": "a.b"}), "tyrum.x.v1")
    (info,) = _details(status, error_details_pb2.ErrorInfo)
    assert isinstance(info, error_details_pb2.ErrorInfo)
    assert info.domain == "tyrum.x.v1"
    assert ErrorReason.Value("ERROR_REASON_" + info.reason) == reason
    assert bool(_details(status, error_details_pb2.RetryInfo)) == (CODES[reason].name == "RESOURCE_EXHAUSTED")
    assert bool(_details(status, error_details_pb2.BadRequest)) == (
        reason == error_pb2.ERROR_REASON_FIELD_INVALID
    )


def test_field_errors_name_the_field_twice() -> None:
    """FIELD_INVALID names the field in ErrorInfo for programs and in BadRequest for tools."""
    status = status_of(field_invalid("spec.argv", "must have 1 to 256 entries"), "tyrum.x.v1")
    (info,) = _details(status, error_details_pb2.ErrorInfo)
    (bad,) = _details(status, error_details_pb2.BadRequest)
    assert isinstance(info, error_details_pb2.ErrorInfo)
    assert isinstance(bad, error_details_pb2.BadRequest)
    assert info.metadata["field"] == bad.field_violations[0].field == "spec.argv"
    assert "1 to 256" in bad.field_violations[0].description


@example("no", {str(number): "x" * 9000 for number in range(20)})
@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.text(), st.dictionaries(st.text(), st.text(min_size=0, max_size=9000), max_size=20))
def test_errors_always_fit_into_trailers(message: str, metadata: dict[str, str]) -> None:
    """No message and no metadata makes an error too large for gRPC's trailers."""
    clean = {key.encode(errors="ignore").decode(): value for key, value in metadata.items()}
    status = status_of(ServiceError(error_pb2.ERROR_REASON_FIELD_INVALID, message * 50, clean), "tyrum.x.v1")
    assert len(status.SerializeToString()) < 5500


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.text(), st.integers(min_value=3, max_value=40))
def test_clipping_keeps_whole_characters(text: str, limit: int) -> None:
    """Clipped text is valid, within its limit, and unchanged when it fits."""
    clipped = clip(text, limit)
    assert len(clipped.encode()) <= limit
    if len(text.encode(errors="replace")) <= limit:
        assert clipped == text.encode(errors="replace").decode()
