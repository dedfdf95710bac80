"""Every way in which admission refuses a provider: where, with which values, and who should act."""

import asyncio
import tempfile
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.host.support import FAST, Place, own, processes_mentioning, spec
from tyrum_provider_host import (
    DeploymentMode,
    Lifecycle,
    ProviderHost,
    ProviderSpec,
    ProviderStatus,
    ProviderUnavailable,
    Secret,
    SecretUnresolved,
    Stage,
    StateName,
    StateValue,
    TimeBounds,
    Trust,
    packaged_contracts,
)

OURS = next(contract for contract in packaged_contracts() if contract.kind == "isolation")
ZEROS = "0" * 64


@dataclass(frozen=True, slots=True)
class Case:
    """One bad provider or configuration, and what its refusal must say."""

    spec: ProviderSpec
    stage: Stage
    says: tuple[str, ...]

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.spec.name


def case(double: str, stage: Stage, *says: str, **changes: object) -> Case:
    """Describe a case by the double that it runs."""
    return Case(spec(double, **changes), stage, says)


def unresolvable() -> Secret:
    """Resolve to nothing."""
    raise SecretUnresolved("the file /run/secrets/key does not exist")


NOT_EXECUTABLE = str(Path(__file__).resolve())

QUICK = (
    case("wrong_kind", Stage.CONTRACT, "expected isolation", "found memory", "operator:"),
    case("wrong_major", Stage.CONTRACT, "expected isolation 1.0", "found isolation 2.0", "operator: upgrade"),
    case("wrong_digest", Stage.CONTRACT, f"expected {OURS.digest}", "found sha256:000000", "operator:"),
    case("wrong_control_version", Stage.CONTRACT, "expected 1 to 1", "found 2", "provider author:"),
    case("future_contract", Stage.CONTRACT, OURS.digest, "isolation 2.0", "operator:"),
    case("wrong_proof", Stage.HANDSHAKE, "the proof is wrong", "32 bytes", "provider author:"),
    case("foreign_socket", Stage.PEER, "another process", "expected uid", "found uid", "operator:"),
    case("descriptor_bad_id", Stage.DESCRIPTOR, "`provider_id`", "found `", "provider author:"),
    case(
        "descriptor_bad_version", Stage.DESCRIPTOR, "`implementation_version`", "`latest`", "provider author:"
    ),
    case("descriptor_no_limits", Stage.DESCRIPTOR, "max_concurrent_operations", "provider author:"),
    case(
        "descriptor_other_kind", Stage.DESCRIPTOR, "expected isolation", "found context", "provider author:"
    ),
    case("descriptor_oversized_schema", Stage.DESCRIPTOR, "`config_schema`", "65536", "provider author:"),
    case("descriptor_repeated_slot", Stage.DESCRIPTOR, "`secret_slots`", "twice", "provider author:"),
    case("descriptor_wrong_cardinality", Stage.DESCRIPTOR, "expected exclusive", "found ordered_many"),
    case("descriptor_invalid_schema", Stage.CONFIG, "not JSON Schema 2020-12", "provider author:"),
    case("descriptor_schema_not_json", Stage.CONFIG, "the schema is not JSON", "provider author:"),
    case("descriptor_remote_reference", Stage.CONFIG, "http://", "outside itself", "provider author:"),
    case("remote_mode", Stage.TRUST, "expected local_process", "found remote", "operator:"),
    case(
        "good",
        Stage.TRUST,
        "expected local_process",
        "found remote",
        "operator:",
        name="deployment-not-admitted",
        deployment=DeploymentMode.REMOTE,
    ),
    case(
        "good",
        Stage.TRUST,
        "expected operator_installed",
        "found external_party",
        "operator:",
        name="trust-not-admitted",
        trust=Trust.EXTERNAL_PARTY,
    ),
    case(
        "good",
        Stage.CONTRACT,
        "no contract for the kind",
        "found telepathy",
        name="other-kind",
        kind="telepathy",
    ),
    case(
        "old_implementation",
        Stage.IMPLEMENTATION,
        "expected >=1.0,<2.0",
        "found 0.",
        "operator: install a build in the range, or change implementation_version",
        implementation_range=">=1.0,<2.0",
    ),
    case(
        "needs_secret", Stage.SECRETS, "`api_key` is required", "expected api_key", "found none", "operator:"
    ),
    case(
        "good",
        Stage.SECRETS,
        "`surplus` is configured and not declared",
        "expected none",
        "found surplus",
        name="undeclared-slot",
        secrets={"surplus": Secret("value-of-surplus")},
    ),
    case(
        "needs_secret",
        Stage.SECRETS,
        "`api_key`",
        "/run/secrets/key does not exist",
        name="unresolvable",
        secrets={"api_key": unresolvable},
    ),
    case(
        "good",
        Stage.CONFIG,
        "/: additionalProperties (colour)",
        "operator:",
        name="config-against-schema",
        config={"colour": "hidden-value"},
    ),
    case("rejects_config", Stage.CONFIG, "no configuration pleases", "(mood)", "operator:"),
    Case(
        own("quotes_secret", secrets={"api_key": Secret("value-that-is-repeated")}),
        Stage.CONFIGURE,
        ("CONFIG_INVALID: the server takes no key ***", "key=***", "operator:"),
    ),
    case("names_no_journal", Stage.CONFIGURE, "names no journal", "`journal_id`, found nothing", "author:"),
    case("accepts_every_bearer", Stage.BEARER, "expected UNAUTHENTICATED, found an answer", "author: check"),
    case("lacks_wait_process", Stage.SERVICE, "lacks RPCs", "WaitProcess. provider author:"),
    case("error_without_info", Stage.CONFIGURE, "Configure: INTERNAL", "provider author:"),
    case("posture_missing_claim", Stage.POSTURE, "missing net.none; unknown none", "provider author: state"),
    case("posture_unknown_claim", Stage.POSTURE, "missing net.none; unknown net.nothing", "provider author:"),
    case("posture_repeated_claim", Stage.POSTURE, "states net.none twice", "provider author: state"),
    case("posture_unspecified_status", Stage.POSTURE, "claim `net.none`", "status", "provider author: state"),
    case("crashes_on_call", Stage.SERVICE, "exited with status 9", "operator:"),
    case("exits_at_start", Stage.LISTEN, "exited with status 7", "license file", "operator:"),
    case(
        "good",
        Stage.CAPABILITY,
        "expected durable",
        "found none",
        "operator:",
        name="missing-capability",
        required_capabilities=frozenset({"durable"}),
    ),
    case(
        "good", Stage.ARTIFACT, f"expected sha256:{ZEROS}", "found sha256:", name="pin", artifact_sha256=ZEROS
    ),
    case(
        "good", Stage.ARTIFACT, "/nonexistent/provider", name="no-program", command=("/nonexistent/provider",)
    ),
    case("good", Stage.ARTIFACT, "not executable", "mode 0", name="no-permission", command=(NOT_EXECUTABLE,)),
)
SILENT = (
    case("hangs_on_handshake", Stage.HANDSHAKE, "DEADLINE_EXCEEDED", "provider author:"),
    case("silent_listener", Stage.HANDSHAKE, "Handshake", "provider author:"),
    case("not_grpc", Stage.HANDSHAKE, "Handshake", "provider author:"),
    case("never_listens", Stage.LISTEN, "did not listen", "within 2 s", "start_timeout", start_timeout=2.0),
)
UNREADY = (
    case("probe_never_ready", Stage.PROBE, "not ready 1 s after", "operator:"),
    case("probe_unknown", Stage.PROBE, "not ready 1 s after", "operator:"),
    case("health_not_serving", Stage.HEALTH, "NOT_SERVING", "provider author:"),
)


async def refuse(cases: tuple[Case, ...], bounds: TimeBounds, place: Place) -> dict[str, ProviderStatus]:
    """Try to admit all of them at once, and try to lease each."""
    host = ProviderHost(
        [item.spec for item in cases], state_dir=place.state, runtime_dir=place.runtime, bounds=bounds
    )
    async with host:
        assert await host.wait_settled(100.0)
        for item in cases:
            with pytest.raises(ProviderUnavailable, match="rejected: refused at"):
                host.lease(item.name)
            with pytest.raises(ProviderUnavailable):
                host.isolation(item.name)
        return {status.name: status for status in host.statuses()}


@pytest.fixture(scope="module")
def refusals(request: pytest.FixtureRequest) -> Iterator[dict[str, ProviderStatus]]:
    """Run the matrix once, or what a selection of tests asks for; at the end nothing of it may be left."""
    asked = {
        _asked(test) for test in request.session.items if "refusals" in getattr(test, "fixturenames", ())
    }
    with tempfile.TemporaryDirectory(prefix="tyh-") as base:
        place = Place(Path(base) / "state", Path(base) / "run")
        yield asyncio.run(_refuse_all(asked, place))
        assert place.instances() == []
        assert processes_mentioning(str(place.runtime)) == []


async def _refuse_all(asked: Set[str | None], place: Place) -> dict[str, ProviderStatus]:
    parts = ((QUICK, FAST), (SILENT, replace(FAST, handshake=2.0)), (UNREADY, replace(FAST, settle=1.0)))
    found = await asyncio.gather(*(refuse(_of(cases, asked), bounds, place) for cases, bounds in parts))
    return {name: status for part in found for name, status in part.items()}


def _asked(test: pytest.Item) -> str | None:
    """Name the case that a test is about; None when it is about all of them."""
    callspec = getattr(test, "callspec", None)
    return callspec.params["item"].name if callspec else None


def _of(cases: tuple[Case, ...], asked: Set[str | None]) -> tuple[Case, ...]:
    return cases if None in asked else tuple(case for case in cases if case.name in asked)


@pytest.mark.parametrize("item", QUICK + SILENT + UNREADY, ids=lambda item: item.name)
def test_refuses_before_any_bind(item: Case, refusals: dict[str, ProviderStatus]) -> None:
    """A provider that breaks one rule is rejected at its stage, saying what, both values and who acts."""
    status = refusals[item.name]
    assert status.lifecycle is Lifecycle.REJECTED
    *passed, failed = status.stages
    assert all(stage.passed for stage in passed)
    assert (failed.stage, failed.passed) == (item.stage, False)
    for text in item.says:
        assert text in status.reason
    assert "operator: " in status.reason or "provider author: " in status.reason
    states = {state.name: state.value for state in status.states}
    assert states[StateName.READY] is StateValue.FALSE
    assert StateValue.TRUE not in {states[StateName.HEALTHY], states[StateName.CAPABLE]}


def test_refusals_never_show_configured_values(refusals: dict[str, ProviderStatus]) -> None:
    """Neither a configured value nor a secret appears in a refusal, a stage or a log."""
    shown = repr(tuple(refusals.values()))
    assert "hidden-value" not in shown
    assert "value-of-surplus" not in shown
    assert "value-that-is-repeated" not in shown


def test_secrets_are_not_resolved_for_a_refused_provider(place: Place) -> None:
    """A secret is resolved only once everything that needs no secret has passed."""
    resolved: list[str] = []

    def source() -> Secret:
        resolved.append("api_key")
        return Secret("never-needed")

    refused = case("old_implementation", Stage.IMPLEMENTATION, implementation_range="<0.0.1")
    item = replace(refused, spec=replace(refused.spec, secrets={"api_key": source}))
    statuses = asyncio.run(refuse((item,), FAST, place))
    assert statuses[item.name].lifecycle is Lifecycle.REJECTED
    assert resolved == []
