"""Canonical JSON: equal values give equal bytes, and nothing else does."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.samples import SLOW
from tyrum_gateway.domain.canonical import canonical_json, digest, digest_text

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(values)
def test_bytes_are_those_of_rfc_8785(value: Any) -> None:
    """An independent implementation of the standard writes the same bytes."""
    assert canonical_json(value).encode() == rfc8785.dumps(value)


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(values)
def test_nothing_is_lost(value: Any) -> None:
    """What was written reads back as the same value."""
    assert json.loads(canonical_json(value)) == value


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(st.dictionaries(texts, values, min_size=2, max_size=5))
def test_order_of_members_does_not_matter(value: dict[str, Any]) -> None:
    """Objects with the same members are the same bytes."""
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


def test_members_are_sorted_by_utf_16() -> None:
    """Order follows the standard's code units, where a character beyond the first plane comes early."""
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'


@pytest.mark.parametrize("value", [1.5, float("nan"), {"a": [1.0]}, object(), {"a": {1}}])
def test_what_has_no_one_form_is_refused(value: Any) -> None:
    """Fractions and foreign types are errors, never approximations."""
    with pytest.raises(TypeError):
        canonical_json(value)


@pytest.mark.parametrize("value", [2**53, -(2**53), [2**60]])
def test_integers_that_other_readers_round_are_refused(value: Any) -> None:
    """Integers stay below 2**53."""
    with pytest.raises(ValueError, match=r"2\*\*53"):
        canonical_json(value)


def test_kinds_never_collide() -> None:
    """The same value under another tag has another digest."""
    assert digest("tyrum.a.1", {}) != digest("tyrum.b.1", {})
    assert digest("tyrum.a.1", {"b": 1}) == digest_text("tyrum.a.1", '{"b":1}')
