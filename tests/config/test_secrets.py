"""References to secrets: where they may stand, what they read, and that nothing shows them."""

import copy
import os
import pickle
from pathlib import Path

import pytest

from tests.config.files import MINIMAL, QUICKSTART, lines, load
from tyrum_gateway.config import SecretReference, SecretUnavailable, SecretValue

CANARY = "CANARY-hunter2"


def reference(text: str, directory: Path, **environment: str) -> SecretReference:
    """Parse a reference as the loader does."""
    return SecretReference.parse(text, environment=environment, directory=directory)


def test_each_source_resolves(tmp_path: Path) -> None:
    """A variable, a file beside the configuration and a systemd credential each give their secret."""
    (tmp_path / "token").write_text(CANARY + "\n", encoding="utf-8")
    for text in ("${env:TOKEN}", "${file:token}", f"${{file:{tmp_path}/token}}", "${credential:token}"):
        found = reference(text, tmp_path, TOKEN=CANARY, CREDENTIALS_DIRECTORY=str(tmp_path))
        assert found.resolve().reveal() == CANARY


def test_a_reference_is_resolved_when_asked(tmp_path: Path) -> None:
    """Loading keeps the reference; a secret rotated afterwards is the one that is found."""
    file = tmp_path / "token"
    file.write_text("old", encoding="utf-8")
    settings = load(tmp_path, MINIMAL + "secrets: {A: '${file:token}'}\n")
    file.write_text("new", encoding="utf-8")
    assert settings.secrets["A"].resolve().reveal() == "new"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${env:MISSING}", "environment variable `MISSING` is not set"),
        ("${env:EMPTY}", "env `EMPTY` is empty"),
        ("${env:BINARY}", "environment variable `BINARY` is not UTF-8 text"),
        ("${file:missing}", "cannot be read: No such file or directory"),
        ("${file:directory}", "not a regular file"),
        ("${file:pipe}", "not a regular file"),
        ("${file:large}", "larger than 64 KiB"),
        ("${file:binary}", "not UTF-8"),
        ("${credential:missing}", "CREDENTIALS_DIRECTORY is not set"),
    ],
)
def test_a_secret_that_is_not_there_is_placed(tmp_path: Path, text: str, expected: str) -> None:
    """A reference that leads nowhere is an error at its position, never an empty secret."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 65537)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (found,) = lines(tmp_path, MINIMAL + f"secrets:\n  TOKEN: {text}\n", {"EMPTY": "", "BINARY": "\udcff"})
    assert found.startswith("9:10: secrets.TOKEN: ")
    assert expected in found


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"Bearer ${{env:{CANARY[:6]}}}",
        "${env:A}${env:B}",
        "${env:}",
        "${vault:A}",
        "${env:A:-x}",
        "$A",
        "${env:${A}}",
    ],
)
def test_only_a_whole_reference_is_a_secret(tmp_path: Path, text: str) -> None:
    """A literal, an embedded, a nested or an unknown reference is refused, and not repeated."""
    found = lines(tmp_path, MINIMAL + f"secrets:\n  TOKEN: '{text}'\n", {"A": "a", "B": "b", "CANARY": "c"})
    assert found
    assert found[0].startswith("9:10: secrets.TOKEN: ")
    assert text not in found[0]


@pytest.mark.parametrize("name", ["../token", "a/b", "..", ".hidden"])
def test_a_credential_stays_in_its_directory(tmp_path: Path, name: str) -> None:
    """A credential's name cannot walk out of systemd's directory."""
    with pytest.raises(ValueError, match="plain name"):
        reference(f"${{credential:{name}}}", tmp_path, CREDENTIALS_DIRECTORY=str(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("run_as: gateway_user", "run_as: '${env:HOME}'", "providers.local.config.run_as"),
        ("[tyrum-provider-local-spawn]", "[/bin/true, 'x=${env:HOME}']", "providers.local.command[1]"),
        ("workspace: workspaces/default", "workspace: ${env:HOME}", "agents.default.workspace"),
        ("reason: prints", "reason: ${file:x} prints", "policy.default.rules[0].reason"),
        ("version: 1", "version: 1\nsecrets: {'${env:HOME}': '${env:HOME}'}", 'secrets["${env:HOME}"]'),
    ],
)
def test_interpolation_elsewhere_is_refused(tmp_path: Path, old: str, new: str, path: str) -> None:
    """`${…}` anywhere but as a secret is an error that names the place."""
    found = lines(tmp_path, QUICKSTART.replace(old, new, 1), {"HOME": "/root", "PATH": os.environ["PATH"]})
    assert any(f" {path}: `${{…}}` is only read under `secrets`" in line for line in found), found


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    """Settings, references and values never show the secret, however they are printed."""
    settings = load(tmp_path, MINIMAL + "secrets: {A: '${env:TOKEN}'}\n", {"TOKEN": CANARY})
    value = settings.secrets["A"].resolve()
    assert f"{value} {value!r} {value:>5}" == "*** *** ***"
    assert CANARY not in f"{settings!r} {settings.secrets!r} {value!r} {[value]} {vars(SecretValue)}"
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not serialised"):
            duplicate(value)


def test_an_unavailable_secret_does_not_show_its_neighbours(tmp_path: Path) -> None:
    """The error of a missing secret names its source only."""
    missing = reference("${env:GONE}", tmp_path, OTHER=CANARY)
    with pytest.raises(SecretUnavailable) as caught:
        missing.resolve()
    assert CANARY not in f"{caught.value!r} {missing!r}"


def test_slots_and_agents_refer_to_declared_secrets(tmp_path: Path) -> None:
    """A provider slot or rule that names an undeclared secret is a dangling reference with a suggestion."""
    text = QUICKSTART.replace("trust:", "secrets: {token: TOKN}\n    trust:", 1).replace(
        "rest: true", "rest: true\n          secrets: [TOKNE]", 1
    )
    found = lines(
        tmp_path, text + "secrets: {TOKEN: '${env:TOKEN}'}\n", {"TOKEN": "x", "PATH": os.environ["PATH"]}
    )
    assert len(found) == 2
    assert all("no secret of this name is declared; did you mean `TOKEN`?" in line for line in found)
