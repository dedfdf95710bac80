"""Configurations against a provider's schema."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tyrum_provider_kit.schema import Violation, check_schema, clipped, parse_config, violations

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["a", "b"]},
        "names": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 2},
        "a/b~c": {
            "type": "object",
            "required": ["x"],
            "patternProperties": {"^y": {}},
            "additionalProperties": False,
        },
        "either": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
    },
    "required": ["mode"],
    "additionalProperties": False,
}
CANARY = "S3CR3T-value"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"mode": "a"}, []),
        ({}, [("/mode", "required")]),
        ({"mode": CANARY}, [("/mode", "enum")]),
        ({"mode": "a", "count": CANARY}, [("/count", "type")]),
        ({"mode": "a", "count": 0}, [("/count", "minimum")]),
        ({"mode": "a", "names": ["ok", CANARY]}, [("/names/1", "pattern")]),
        ({"mode": "a", "names": ["a", "b", "c"]}, [("/names", "maxItems")]),
        ({"mode": "a", "extra": CANARY}, [("/extra", "additionalProperties")]),
        (
            {"mode": "a", "a/b~c": {"y": 1, "z": 2}},
            [("/a~1b~0c/x", "required"), ("/a~1b~0c/z", "additionalProperties")],
        ),
        ({"mode": "a", "either": CANARY}, [("/either", "oneOf")]),
    ],
)  # fmt: skip
def test_violations_name_place_and_rule(config: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Each finding points to the place in the configuration and names the rule, and repeats no value."""
    found = violations(SCHEMA, config)
    assert [(item.path, item.rule) for item in found] == expected
    assert CANARY not in repr(found)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"anyOf": [{"const": "me"}, {"type": "object", "properties": {"uid": {}, "gid": {}}}]}, CANARY,
         '/x: must be "me" or an object of uid, gid'),
        ({"anyOf": [{"const": "me"}, {"type": "object", "properties": {"uid": {"minimum": 1}}}]}, {"uid": 0},
         "/x/uid: must keep minimum 1"),
        ({"oneOf": [{"minimum": 1}, {"enum": [2, "two"]}]}, 2,
         '/x: must be exactly one of: what the schema describes there or 2 or "two"'),
        ({"oneOf": [{"type": "null"}, {"type": ["array", "boolean"]}]}, CANARY,
         "/x: must be exactly one of: of type null or of type array or boolean"),
        ({"enum": ["a", "b"]}, CANARY, '/x: must be "a" or "b"'),
        ({"const": 7}, CANARY, "/x: must be 7"),
        ({"not": {"const": "root"}}, "root", '/x: must not be "root"'),
        ({"uniqueItems": True}, [1, 1], "/x: must not hold an item twice"),
        ({"properties": {"a": {}, "b": {}}, "additionalProperties": False}, {"c": 1},
         "/x/c: is not a known property; known are a, b"),
    ],
)  # fmt: skip
def test_violations_say_what_is_permitted(schema: dict[str, Any], value: object, message: str) -> None:
    """A finding lists the values, types and names that the schema has, for the nearest alternative if any."""
    (found,) = violations({"type": "object", "properties": {"x": schema}}, {"x": value})
    assert f"{found.path}: {found.message}" == message


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.just(CANARY),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "x"]), inner)
    ),
    max_leaves=8,
)


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "x", "y"]), _json, max_size=5))
def test_no_value_is_ever_repeated(config: dict[str, Any]) -> None:
    """Whatever the configuration, no value of it stands in a finding, and all texts keep their limits."""
    found = clipped(violations(SCHEMA, config))
    assert CANARY not in repr(found)
    assert len(found) <= 64
    assert all(len(item.message.encode()) <= 512 and len(item.rule.encode()) <= 64 for item in found)


def test_long_findings_are_cut() -> None:
    """Sixty-four findings with short texts are the most the contract carries."""
    found = clipped([Violation("/x", "r" * 100, "m" * 1000)] * 100)
    assert len(found) == 64
    assert len(found[0].rule.encode()) == 64
    assert len(found[0].message.encode()) == 512


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {},
        {"type": "object", "properties": 7},
        {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"},
        {"type": "object", "$ref": "http://localhost:9/x.json"},
        {"type": "object", "properties": {"x": {"allOf": [{"$ref": "other.json#/a"}]}}},
        {"type": "object", "description": "x" * 65_536},
    ],
)
def test_schemas_the_contract_does_not_admit_are_refused(schema: dict[str, Any]) -> None:
    """A schema of another type or dialect, invalid, too large, or referring outside itself is refused."""
    with pytest.raises(ValueError, match="config_schema"):
        check_schema(schema)


def test_local_references_are_admitted() -> None:
    """A schema may refer to its own definitions."""
    schema = {
        "type": "object",
        "$defs": {"n": {"type": "integer"}},
        "properties": {"n": {"$ref": "#/$defs/n"}},
    }
    check_schema(schema)
    assert violations(schema, {"n": "x"}) == [Violation("/n", "type", "must be of type integer")]


@pytest.mark.parametrize(
    "config",
    [
        b"[]", b"null", b"", b"{", b"\xff{}", b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"a": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_is_not_one_plain_object_is_refused(config: bytes) -> None:
    """Only one UTF-8 JSON object with unique names and finite numbers is a configuration."""
    with pytest.raises(ValueError, match=r"^(must|repeats|is nested)"):
        parse_config(config)


@settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.text(), _json))
def test_every_json_object_is_parsed(config: dict[str, Any]) -> None:
    """What any JSON writer produces comes back unchanged."""
    assert parse_config(json.dumps(config).encode()) == config
