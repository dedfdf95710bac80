"""Hostile arguments never influence the selection and never break the tool (ARCH-29)."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.tools.places import Bench
from tyrum_gateway.domain.canonical import canonical_json
from tyrum_gateway.domain.tool import Prepared, Rejected
from tyrum_gateway.tools.run_arguments import SCHEMA

pytestmark = pytest.mark.asyncio(loop_scope="module")

SELECTORS = [
    "provider",
    "provider_id",
    "profile",
    "profiles",
    "isolation",
    "isolation_profile",
    "binding",
    "binding_id",
    "boundary",
    "sandbox",
    "backend",
    "contract",
    "contract_major",
    "artifact",
    "config",
    "config_digest",
    "claims",
    "required_claims",
    "trust",
    "deployment",
    "instance",
    "host",
    "workspace",
    "user",
    "uid",
    "run_as",
    "limits",
    "policy",
    "rule",
    "approval",
    "approved",
    "effect",
    "tool",
    "durable",
    "secret_env",
    "operands",
]
VALUES: tuple[Any, ...] = (
    "other",
    "default",
    "none",
    "",
    None,
    True,
    0,
    -1,
    [],
    ["other"],
    {},
    {"name": "other"},
    "dev.tyrum.conformance.good",
    "../other",
    "other\u0000",
    "\u202eother",
    "ｏther",
    "OTHER",
)
SPELLINGS = (
    "{}",
    "{}s",
    "_{}",
    " {}",
    "{} ",
    "{}\u200b",
    "{}\u0000",
    "\ufeff{}",
    "argv.{}",
    "{}[0]",
    "$ref/{}",
)
RAW = (
    "",
    " ",
    "null",
    "true",
    "0",
    '"argv"',
    "[]",
    "[{}]",
    "{",
    "}",
    "{}",
    '{"argv"}',
    '{"argv": }',
    "{'argv': ['ls']}",
    '{"argv": ["true"],}',
    '{"argv": ["true"]} {}',
    '{"argv": ["true"]}//',
    "\ufeff{}",
    "NaN",
    "Infinity",
    '{"argv": NaN}',
    '{"timeout_ms": NaN, "argv": ["true"]}',
    '{"argv": ["true"], "timeout_ms": 1e3}',
    '{"argv": ["true"], "timeout_ms": 1.0}',
    '{"argv": ["true"], "timeout_ms": -0}',
    '{"argv": ["true"], "timeout_ms": ' + "9" * 5000 + "}",
    '{"argv": ["true"], "argv": ["ls"]}',
    '{"argv": ["true"], "env": {"A": "1", "A": "2"}}',
    '{"argv": ["true"], "\\u0061rgv": ["ls"]}',
    '{"argv": ["\\ud800"]}',
    '{"argv": ["\\udc00\\ud800"]}',
    '{"argv": ["a\\u0000b"]}',
    '{"shell": "a\\u0000b"}',
    '{"argv": ["true"], "env": {"A\\u0000": "1"}}',
    '{"argv": ["true"], "env": {"\\ud800": "1"}}',
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"argv": ' + "[" * 50 + "]" * 50 + "}",
    '"' + '\\"' * 500_000,
    '{"argv": ["' + "x" * 2_000_000 + '"]}',
    '{"argv": ["' + "é" * 600_000 + '"]}',
    '{"__proto__": {}, "argv": ["true"]}',
    '{"argv": ["true"], "constructor": {}}',
)
BAD_FIELDS: tuple[dict[str, Any], ...] = (
    {"argv": []},
    {"argv": "true"},
    {"argv": [1]},
    {"argv": [None]},
    {"argv": [["true"]]},
    {"argv": {"0": "true"}},
    {"argv": ["true"] * 257},
    {"argv": ["true", "x" * 131_072]},
    {"argv": ["true", *["x" * 120_000] * 2]},
    {"argv": ["true"], "shell": "true"},
    {"shell": ""},
    {"shell": " \n"},
    {"shell": "x" * 16_385},
    {"shell": ["true"]},
    {"shell": "é" * 8_193},
    {"cwd": "."},
    {"argv": ["true"], "cwd": None},
    {"argv": ["true"], "cwd": "x" * 5_000},
    {"argv": ["true"], "env": []},
    {"argv": ["true"], "env": {"A": 1}},
    {"argv": ["true"], "env": {"A": None}},
    {"argv": ["true"], "env": {"": "1"}},
    {"argv": ["true"], "env": {"A=B": "1"}},
    {"argv": ["true"], "env": {"1A": "1"}},
    {"argv": ["true"], "env": {"A B": "1"}},
    {"argv": ["true"], "env": {"Ａ": "1"}},
    {"argv": ["true"], "env": {"A\n": "1"}},
    {"argv": ["true"], "env": {"BASH_FUNC_x%%": "() { :; }"}},
    {"argv": ["true"], "env": {"A": {"B": "1"}}},
    {"argv": ["true"], "env": {f"V{index}": "" for index in range(65)}},
    {"argv": ["true"], "env": {"A": "x" * 131_072}},
    {"argv": ["true"], "env": {"TYRUM_PROVIDER_SOCKET": "/tmp/x"}},
    {"argv": ["true"], "env": {"TYRUM_": ""}},
    {"argv": ["true"], "stdin": 1},
    {"argv": ["true"], "stdin": "x" * 65_537},
    {"argv": ["true"], "stdin": "é" * 32_769},
    {"argv": ["true"], "secrets": "TOKEN"},
    {"argv": ["true"], "secrets": ["TOKEN"]},
    {"argv": ["true"], "secrets": [1]},
    {"argv": ["true"], "secrets": ["A", "A"]},
    {"argv": ["true"], "secrets": ["A-B"]},
    {"argv": ["true"], "secrets": {}},
    {"argv": ["true"], "secrets": [f"S{index}" for index in range(33)]},
    {"argv": ["true"], "secrets": ["PATH"]},
    {"argv": ["true"], "timeout_ms": 0},
    {"argv": ["true"], "timeout_ms": -1},
    {"argv": ["true"], "timeout_ms": "5"},
    {"argv": ["true"], "timeout_ms": True},
    {"argv": ["true"], "timeout_ms": 1.5},
    {"argv": ["true"], "timeout_ms": 10**12},
    {"argv": ["true"], "timeout_ms": None},
    {"argv": ["other/../../true"]},
    {"argv": ["\n"]},
    {"argv": ["tru\u0435"]},
)
HARMLESS: tuple[dict[str, Any], ...] = (
    {"argv": ["true", "--provider=other", "--profile", "other"]},
    {"argv": ["true"], "env": {"PROVIDER": "other", "ISOLATION": "none", "profile": "other", "PATH": "/tmp"}},
    {"argv": ["true"], "env": {"LD_PRELOAD": "/tmp/x.so", "BASH_ENV": "/tmp/x", "PYTHONPATH": "/tmp"}},
    {"argv": ["true"], "stdin": '{"provider": "other", "binding": {"profile": "other"}}'},
    {"shell": "export TYRUM_PROVIDER=other; # provider: other"},
    {"argv": ["true"], "cwd": "other"},
    {"argv": ["true", "../../../etc/passwd", "${provider.other}", "\u202e", "🦊"]},
)


def hostile() -> Iterator[str]:
    """Generate argument texts: hand-written ones, every selector in every disguise, and random nestings."""
    yield from RAW
    yield from map(json.dumps, BAD_FIELDS)
    yield from map(json.dumps, HARMLESS)
    source = random.Random(29)
    for name in SELECTORS:
        for spelling in source.sample(SPELLINGS, 7):
            place: dict[str, Any] = {"argv": ["true"], spelling.format(name): source.choice(VALUES)}
            yield json.dumps(place)
        yield json.dumps({"argv": ["true"], "env": {name: source.choice(VALUES)}})
        yield json.dumps({"argv": ["true", {name: "other"}]})
        yield json.dumps({"shell": {name: "other"}})
        yield json.dumps({name: {"argv": ["true"]}})
    for _ in range(60):
        yield json.dumps(_nested(source, 3))


def _nested(source: random.Random, depth: int) -> dict[str, Any]:
    names = ("argv", "shell", "cwd", "env", "stdin", "secrets", "timeout_ms", *SELECTORS)
    value: dict[str, Any] = {}
    for _ in range(source.randint(1, 5)):
        deeper = depth > 0 and source.random() < 0.4
        value[source.choice(names)] = _nested(source, depth - 1) if deeper else source.choice(VALUES)
    return value


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for item in schema.values():
            yield from _objects(item)


async def test_hostile_arguments_leave_the_selection_untouched(place: Bench) -> None:
    """Each of 500 hostile argument sets is rejected naming its problem, or binds the same candidate."""
    (place.workspace / "other").mkdir()
    baseline = await place.prepare(argv=["true"])
    assert baseline.candidate is not None
    expected = canonical_json(baseline.candidate.shown())
    count = accepted = 0
    for arguments in hostile():
        count += 1
        result = await place.tool.prepare(arguments)
        match result:
            case Rejected(problem):
                assert problem
                assert problem.isprintable(), problem
                assert len(problem) < 400
            case Prepared(candidate=candidate):
                accepted += 1
                assert candidate == baseline.candidate
                assert canonical_json(candidate.shown()) == expected
                assert f'"boundary":{expected}' in result.subject.json
                assert result.run is not None
                assert result.run.required_claims == ()
    assert count >= 500
    assert accepted >= len(HARMLESS), "otherwise nothing but rejection was tried"
    assert accepted < count / 2


async def test_every_broken_rule_is_rejected(place: Bench) -> None:
    """What breaks the schema is told to the model and never reaches policy."""
    for arguments in (*map(json.dumps, BAD_FIELDS), *RAW):
        await place.problem(arguments)


@pytest.mark.parametrize("field", SELECTORS)
async def test_fields_that_would_select_do_not_exist(place: Bench, field: str) -> None:
    """A field that names a provider, a profile or a boundary is refused by name."""
    assert f"`{field}` is no field" in await place.problem({"argv": ["true"], field: "other"})


async def test_schema_is_closed_at_every_level() -> None:
    """Every object of the schema that models are told refuses members it does not list."""
    objects = list(_objects(SCHEMA))
    assert len(objects) == 2
    for schema in objects:
        rest = schema["additionalProperties"]
        assert rest is False or rest["type"] == "string"
    assert set(objects[0]["properties"]) == {"argv", "shell", "cwd", "env", "stdin", "secrets", "timeout_ms"}
    assert not set(objects[0]["properties"]) & set(SELECTORS)


async def test_code_and_schema_agree(place: Bench) -> None:
    """What the published schema rejects, the code rejects too, and what the code takes is valid in both; the
    schema is the subset that every model server takes, and says no more than types, counts and members.
    """
    validator = Draft202012Validator(dict(SCHEMA))
    for valid in HARMLESS:
        assert validator.is_valid(valid)
    beyond_schema = 0
    for broken in BAD_FIELDS:
        beyond_schema += validator.is_valid(broken)
    assert beyond_schema <= 29, "one of two, lengths, forms of names and what is resolved: it cannot say more"
