"""Identifiers sort by time, carry their kind, and come in through one door."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.samples import SLOW
from tyrum_gateway.domain import ids
from tyrum_gateway.domain.errors import InvalidRequest
from tyrum_gateway.domain.ids import CallId, EntityId, TurnId

KINDS = [kind for kind in EntityId.__subclasses__() if kind.__module__ == ids.__name__]
times = st.integers(0, 2**48 - 1)
randomness = st.binary(min_size=10, max_size=10)


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.sampled_from(KINDS), times, randomness)
def test_what_is_built_parses(kind: type[EntityId], milliseconds: int, noise: bytes) -> None:
    """A built identifier is accepted as its own kind, and as no other."""
    text = str(kind.build(milliseconds, noise))
    assert kind.parse(text, "id") == text
    for other in KINDS:
        if other is not kind:
            with pytest.raises(InvalidRequest):
                other.parse(text, "id")


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(times, times, randomness, randomness)
def test_identifiers_sort_by_time(first: int, second: int, one: bytes, two: bytes) -> None:
    """Later identifiers are greater, as text too."""
    if first < second:
        assert TurnId.build(first, one) < TurnId.build(second, two)


def test_prefixes_are_unique() -> None:
    """No two kinds share a prefix."""
    assert len({kind.prefix for kind in KINDS}) == len(KINDS) >= 9


@pytest.mark.parametrize(
    "text",
    [
        "",
        "call",
        "call_",
        "call_" + "0" * 25,
        "call_" + "0" * 27,
        "call_" + "8" + "0" * 25,
        "call_" + "I" * 26,
        "call_" + "u" * 26,
        "CALL_" + "0" * 26,
        "call_" + "0" * 26 + "\n",
        " call_" + "0" * 26,
        "call_" + "٠" * 26,
        "turn_" + "0" * 26,
    ],
)
def test_other_text_is_refused_by_field(text: str) -> None:
    """Whatever is no identifier of the kind is refused, naming the field and not the text."""
    with pytest.raises(InvalidRequest) as caught:
        CallId.parse(text, "call_id")
    assert caught.value.field == "call_id"
