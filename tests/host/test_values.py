"""Promises of the host's values: versions, specifications, configuration, descriptors, proofs, artifacts."""

import base64
import json
import os
import resource
import sys
from importlib import resources
from pathlib import Path

import pytest

from tyrum.provider.v1 import control_pb2
from tyrum_provider_host import ProviderSpec, Secret, SpecError, proof
from tyrum_provider_host.artifact import ArtifactError, measure
from tyrum_provider_host.config import ConfigError, findings, prepare
from tyrum_provider_host.descriptor import DescriptorError, check
from tyrum_provider_host.launch import LaunchError, create_directory
from tyrum_provider_host.version import ImplementationRange, SemanticVersion


@pytest.mark.parametrize(
    ("text", "admitted", "refused"),
    [
        (">=0.1,<0.2", ["0.1.0", "0.1.9+build"], ["0.0.9", "0.2.0", "0.2.0-rc.1", "0.1.0-rc.1"]),
        ("==1.2.3", ["1.2.3", "1.2.3+other"], ["1.2.4", "1.2.3-beta"]),
        (">1, !=1.5", ["1.0.1", "2.0.0"], ["1.0.0", "1.5.0"]),
        ("<=2.0", ["2.0.0", "2.0.0-rc.1"], ["2.0.1"]),
    ],
)
def test_implementation_range(text: str, admitted: list[str], refused: list[str]) -> None:
    """A range admits by semantic-version order, and a pre-release never slips in below an upper bound."""
    bounds = ImplementationRange.parse(text)
    assert [item for item in admitted if not bounds.admits(SemanticVersion.parse(item))] == []
    assert [item for item in refused if bounds.admits(SemanticVersion.parse(item))] == []


def test_versions_order_as_semver_says() -> None:
    """Pre-releases order numerically where numeric, before words, before the release."""
    ordered = ["1.0.0-2", "1.0.0-11", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-beta", "1.0.0", "1.0.1"]
    assert sorted(ordered, key=lambda text: SemanticVersion.parse(text).precedence) == ordered


@pytest.mark.parametrize("text", ["", "~1.0", ">=", ">=1.0 <2.0", ">=1.0,", "=1"])
def test_malformed_ranges_are_refused(text: str) -> None:
    """A malformed comparison is refused and quoted."""
    with pytest.raises(ValueError, match="is not a comparison"):
        ImplementationRange.parse(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../up"},
        {"name": ""},
        {"command": ()},
        {"command": ("relative/path",)},
        {"command": ("/bin/true", "a\0b")},
        {"artifact_sha256": "abc"},
        {"start_timeout": 0.0},
        {"implementation_range": "latest"},
        {"environment": {"TYRUM_TOKEN": "x"}},
        {"environment": {"A-B": "x"}},
    ],
)
def test_unusable_specifications_are_refused(changes: dict[str, object]) -> None:
    """A specification that could not be honoured is refused when it is made."""
    arguments: dict[str, object] = {"name": "good", "kind": "isolation", "command": ("/bin/true",)}
    with pytest.raises(SpecError):
        ProviderSpec(**(arguments | changes))  # type: ignore[arg-type]


def test_secrets_do_not_show_themselves() -> None:
    """No way of printing or storing a secret shows it."""
    secret = Secret("hidden")
    assert {repr(secret), str(secret), f"{secret:>3}", f"{secret!r}"} == {"***"}
    assert "hidden" not in repr(ProviderSpec("a", "memory", ("/bin/true",), secrets={"key": secret}))
    assert secret.reveal() == "hidden"


SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"port": {"type": "integer", "maximum": 10}, "name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
)


def test_findings_name_place_and_rule_and_no_value() -> None:
    """Every violation is listed by pointer and rule; the offending values do not appear."""
    config = {"port": 4711, "colour": "hidden", "a/b": 1}
    found = findings(SCHEMA, prepare(config))
    assert tuple(sorted(found)) == (
        "/: additionalProperties (a/b, colour)",
        "/: required (name)",
        "/port: maximum (10)",
    )


@pytest.mark.parametrize(
    ("schema", "finding"),
    [
        (
            {"anyOf": [{"const": "me"}, {"type": "object", "properties": {"uid": {}, "gid": {}}}]},
            '/as: anyOf ("me" or an object of uid, gid)',
        ),
        (
            {"oneOf": [{"type": "integer"}, {"not": {}}]},
            "/as: oneOf (integer or what else the schema describes)",
        ),
        ({"enum": ["a", 2]}, '/as: enum ("a" or 2)'),
        ({"const": "me"}, '/as: const ("me")'),
    ],
)
def test_findings_name_what_is_permitted(schema: dict[str, object], finding: str) -> None:
    """Alternatives and listed values stand in the finding, as the schema has them."""
    text = json.dumps({"type": "object", "properties": {"as": schema}})
    assert findings(text, prepare({"as": "hidden"})) == (finding,)


def test_configuration_bytes_are_canonical() -> None:
    """The same configuration has the same bytes and digest in whatever order it was written."""
    assert prepare({"b": 1, "a": [True, None, "ü"]}) == prepare({"a": (True, None, "ü"), "b": 1})


@pytest.mark.parametrize("config", [{"x": float("nan")}, {"x": object()}, {"x": "y" * 70_000}])
def test_configuration_must_be_small_json(config: dict[str, object]) -> None:
    """What is not JSON or too large is refused."""
    with pytest.raises(ConfigError):
        prepare(config)


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[]",
        '{"type":"string"}',
        '{"type":"object","$ref":"https://x/y"}',
        '{"type":"object","required":1}',
        '{"type":"object","properties":' + '{"not":' * 300 + "{}" + "}" * 301,
        '{"type":"object","properties":{"a":{"$ref":"#/type"}}}',
        f'{{"type":"object","properties":{{"b":{{"multipleOf":{10**400}}}}}}}',
    ],
)
def test_unusable_schemas_are_refused(schema: str) -> None:
    """A schema that is no local JSON Schema of an object is refused, never evaluated."""
    with pytest.raises(ConfigError, match="schema"):
        findings(schema, prepare({"a": "text", "b": 1.5}))


def descriptor() -> control_pb2.ProviderDescriptor:
    """Describe a well-formed provider."""
    return control_pb2.ProviderDescriptor(
        provider_id="dev.example.provider",
        implementation_version="1.0.0",
        kind="isolation",
        cardinality=control_pb2.CARDINALITY_EXCLUSIVE,
        deployment_mode=control_pb2.DEPLOYMENT_MODE_LOCAL_PROCESS,
        trust=control_pb2.TRUST_OPERATOR_INSTALLED,
        config_schema='{"type":"object"}',
        limits=control_pb2.Limits(max_concurrent_operations=1),
    )


def test_well_formed_descriptor_is_accepted() -> None:
    """The control case: the descriptor that the next test spoils is fine."""
    assert check(descriptor()).provider_id == "dev.example.provider"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("provider_id", "nodots"),
        ("provider_id", "a." + "b" * 130),
        ("implementation_version", "1"),
        ("implementation_version", "1.0.0-" + "a" * 64),
        ("kind", ""),
        ("cardinality", 0),
        ("cardinality", 99),
        ("deployment_mode", 0),
        ("trust", 0),
        ("config_schema", ""),
        ("config_schema", "x" * 65_537),
        ("secret_slots", [control_pb2.SecretSlot(name="UPPER")]),
        ("secret_slots", [control_pb2.SecretSlot(name="a", purpose="p" * 257)]),
        ("secret_slots", [control_pb2.SecretSlot(name=f"s{index}") for index in range(33)]),
        ("capabilities", ["a b"]),
        ("capabilities", ["a", "a"]),
        ("capabilities", [f"c{index}" for index in range(65)]),
        ("limits", control_pb2.Limits()),
        ("handle_versions", list(range(17))),
        ("cache_directories", ["../up"]),
        ("cache_directories", ["/abs"]),
        ("cache_directories", [f"c{index}" for index in range(17)]),
    ],
)
def test_each_descriptor_field_is_checked(field: str, value: object) -> None:
    """A descriptor with one bad field is refused, naming the field."""
    message = descriptor()
    message.ClearField(field)  # type: ignore[arg-type]
    message.MergeFrom(control_pb2.ProviderDescriptor(**{field: value}))  # type: ignore[arg-type]
    with pytest.raises(DescriptorError, match=f"`{field}"):
        check(message)


def test_descriptor_names_every_bad_field() -> None:
    """An empty descriptor is refused with all that is missing."""
    with pytest.raises(DescriptorError) as refused:
        check(control_pb2.ProviderDescriptor())
    for field in ("provider_id", "implementation_version", "kind", "cardinality", "trust", "config_schema"):
        assert f"`{field}`" in str(refused.value)


def test_proof_matches_the_published_vectors() -> None:
    """Token, proof and bearer are computed as the vectors that ship with the contracts say."""
    text = (resources.files("tyrum") / "contracts" / "handshake-vectors.json").read_text(encoding="utf-8")
    vectors = json.loads(text)["vectors"]
    assert vectors
    for vector in vectors:
        token = base64.urlsafe_b64decode(vector["token"] + "=")
        computed = proof.proof(
            token,
            nonce=bytes.fromhex(vector["nonce"]),
            instance_id=vector["instance_id"],
            kind=vector["kind"],
            control_version=vector["control_version"],
            contract_version=vector["contract_version"],
            contract_digest=vector["contract_digest"],
        )
        assert computed.hex() == vector["proof"]
        assert proof.bearer(token) == vector["bearer"]


def test_artifact_covers_scripts_given_to_an_interpreter(tmp_path: Path) -> None:
    """A script named by an argument is part of the digest, and its replacement is noticed."""
    script = tmp_path / "provider.js"
    script.write_text("one", encoding="ascii")
    before = measure(("/bin/sh", str(script)))
    assert str(script) in before.coverage
    assert before.changed() is None
    script.write_text("two", encoding="ascii")
    assert before.changed() == str(script)
    assert measure(("/bin/sh", str(script))).digest != before.digest


def test_artifact_of_a_module_covers_its_package() -> None:
    """`python -m` under this interpreter is measured by the packages that run in it."""
    python = str(Path(sys.executable).parent / "python")
    measured = measure((python, "-m", "tyrum_conformance.broken", "good"))
    assert "tyrum_conformance" in measured.coverage
    assert "tyrum_provider_kit" in measured.coverage
    assert any(file.path.endswith("broken/good.py") for file in measured.files)


def test_artifact_must_be_a_regular_executable(tmp_path: Path) -> None:
    """A directory and a file that may not be executed are refused by name."""
    with pytest.raises(ArtifactError, match="not a regular file"):
        measure((str(tmp_path),))
    plain = tmp_path / "plain"
    plain.write_bytes(b"\x7fELF")
    with pytest.raises(ArtifactError, match="not executable") as caught:
        measure((str(plain),))
    assert not caught.value.passing


def test_a_shortage_of_the_machine_passes(tmp_path: Path) -> None:
    """That no descriptor is free is told apart from what only another build or configuration removes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull, "rb") as lowest:  # noqa: PTH123 - its number is the lowest that is free
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(ArtifactError) as unmeasured:
            measure(("/bin/sh",))
        with pytest.raises(LaunchError) as unmade:
            create_directory(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert unmeasured.value.passing
    assert unmade.value.passing
    assert not list(tmp_path.iterdir())
