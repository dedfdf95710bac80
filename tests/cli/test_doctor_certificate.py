"""`tyrum doctor` looks at the certificate that the gateway would serve with."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.config.files import MINIMAL, write
from tests.support.certificates import Authority
from tyrum_gateway.cli.commands import run


def finding(capsys: pytest.CaptureFixture[str], directory: Path, cert: Path, key: Path) -> dict[str, str]:
    """What the doctor says about a configuration with this pair."""
    return told(
        capsys, directory, f"{MINIMAL}listen: {{tcp: 0.0.0.0:7460, tls: {{cert: {cert}, key: {key}}}}}\n"
    )


def told(capsys: pytest.CaptureFixture[str], directory: Path, text: str) -> dict[str, str]:
    """What the doctor says about the certificates of a configuration."""
    config = write(directory, text)
    run(["doctor", "--config", str(config), "--state-dir", str(directory / "state"), "--output", "json"])
    found = json.loads(capsys.readouterr().out)
    (one,) = [item for item in found if item["check"] == "certificate"]
    return dict(one)


@pytest.mark.parametrize(
    ("days", "result", "word"), [(365, "ok", "`"), (7, "warn", "expires at"), (-1, "fail", "expired at")]
)
def test_the_end_of_the_certificate_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int, result: str, word: str
) -> None:
    """A certificate is fine, warned of in its last thirty days, and a failure after its end."""
    authority = Authority.create(tmp_path / "tls")
    now = datetime.now(UTC)
    pair = authority.issue(
        "gateway", "localhost", start=now - timedelta(days=400), end=now + timedelta(days=days)
    )
    found = finding(capsys, tmp_path, pair.cert, pair.key)
    assert found["result"] == result
    assert word in found["detail"]
    assert bool(found["fix"]) == (result != "ok")


def test_a_pair_that_cannot_be_served_with_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that does not fit is found before the gateway is started with it."""
    authority = Authority.create(tmp_path / "tls")
    first, second = authority.issue("first", "localhost"), authority.issue("second", "localhost")
    found = finding(capsys, tmp_path, first.cert, second.key)
    assert found["result"] == "fail"
    assert "not that of the certificate" in found["detail"]
    assert found["fix"].startswith("tyrum config validate ")


def test_the_authorities_of_a_model_that_are_gone_are_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a model needs to trust its server is found missing before a turn needs it."""
    monkeypatch.setenv("KEY", "k")
    model = "  main: {kind: openai, model: m, api_key: MODEL_KEY, ca_file: gone.pem}"
    text = MINIMAL.replace("models:\n", f"models:\n{model}\n") + "secrets: {MODEL_KEY: '${env:KEY}'}\n"
    found = told(capsys, tmp_path, text)
    assert found["result"] == "fail"
    assert "cannot be read" in found["detail"]
