"""Models behind HTTP in the configuration: what they need, and what is said when it is missing."""

import sys
from pathlib import Path
from typing import Literal

import pytest

from tests.config.files import MINIMAL, lines, load
from tests.support.certificates import Authority
from tyrum_gateway.config import ConfigProblems, RemoteModelSettings

ENVIRONMENT = {"PATH": "/usr/bin", "KEY": "sk-canary-1b2c"}
SECRETS = "secrets: {MODEL_KEY: '${env:KEY}'}\n"


def with_model(keys: str) -> str:
    """Write a configuration with one more model."""
    return MINIMAL.replace("models:\n", f"models:\n  main: {{{keys}}}\n") + SECRETS


@pytest.mark.parametrize(
    ("kind", "base_url"),
    [("openai", "https://api.openai.com/v1"), ("anthropic", "https://api.anthropic.com")],
)
def test_a_model_has_the_address_of_its_provider_unless_another_is_given(
    tmp_path: Path, kind: Literal["openai", "anthropic"], base_url: str
) -> None:
    """Two keys are enough; the address and the limit can be set."""
    keys = f"kind: {kind}, model: made-up-1, api_key: MODEL_KEY"
    plain = load(tmp_path, with_model(keys), ENVIRONMENT)
    assert plain.models["main"] == RemoteModelSettings(
        kind, "main", "made-up-1", "MODEL_KEY", base_url, max_output_tokens=None
    )
    more = "base_url: 'http://[::1]:8000/v1/', max_output_tokens: 100"
    chosen = load(tmp_path, with_model(f"{keys}, {more}"), ENVIRONMENT).models["main"]
    assert isinstance(chosen, RemoteModelSettings)
    assert (chosen.base_url, chosen.max_output_tokens) == ("http://[::1]:8000/v1", 100)


def test_a_key_that_is_no_declared_secret_is_placed(tmp_path: Path) -> None:
    """A dangling name is told with its place and a suggestion; a key in its place is not repeated."""
    keys = "kind: openai, model: m, api_key: {}"
    (typo,) = lines(tmp_path, with_model(keys.format("MODEL_KEi")), ENVIRONMENT)
    expected = "models.main.api_key: no secret of this name is declared; did you mean `MODEL_KEY`?"
    assert typo.endswith(expected)
    assert typo.startswith("3:")
    found = lines(tmp_path, with_model(keys.format("sk-canary-9z")), ENVIRONMENT)
    assert found
    assert "sk-canary" not in " ".join(found)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://models.example.org/v1", "expected https, or http on loopback"),
        ("http://localhost.example.org", "expected https, or http on loopback"),
        ("http://127.0.0.1.example.org", "expected https, or http on loopback"),
        ("ftp://127.0.0.1/", "expected https"),
        ("https://user:canary@models.example.org", "an address has no user, query or fragment"),
        ("https://models.example.org/?key=canary", "an address has no user, query or fragment"),
        ("https://models.example.org/#canary", "an address has no user, query or fragment"),
        ("models.example.org", "expected an address"),
        ("https://", "expected an address"),
        ("https://models.example.org:99999", "expected an address"),
        ("https://mödels.example.org", "expected an address"),
        ("https://models.example.org/a b", "expected an address"),
        ("https://mod<els.example.org", "expected an address"),
    ],
)
def test_where_a_key_must_not_go_is_refused(tmp_path: Path, url: str, part: str) -> None:
    """A key travels to https or loopback only; the message repeats nothing of the address."""
    keys = f"kind: openai, model: m, api_key: MODEL_KEY, base_url: '{url}'"
    (found,) = lines(tmp_path, with_model(keys), ENVIRONMENT)
    assert f"models.main.base_url: {part}" in found
    assert "canary" not in found


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "http://127.0.0.9/v1", "https://10.0.0.1/v1"])
def test_servers_on_loopback_need_no_tls(tmp_path: Path, url: str) -> None:
    """A local model server is reached without TLS, any other with it."""
    keys = f"kind: openai, model: m, api_key: MODEL_KEY, base_url: '{url}'"
    assert lines(tmp_path, with_model(keys), ENVIRONMENT) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("kind: openai, api_key: MODEL_KEY", "models.main.model: required key is missing"),
        ("kind: anthropic, model: m", "models.main.api_key: required key is missing"),
        ("kind: openai, model: m, api_key: MODEL_KEY, max_output_tokens: 0", "must be at least 1"),
        ("kind: openai, model: m, api_key: MODEL_KEY, script: x", "models.main.script: unknown key"),
        ("kind: openia, model: m, api_key: MODEL_KEY", "did you mean `openai`?"),
    ],
)
def test_wrong_models_are_explained(tmp_path: Path, keys: str, expected: str) -> None:
    """Missing, excess and misspelt keys are told at their place."""
    found = lines(tmp_path, with_model(keys), ENVIRONMENT)
    assert any(expected in line for line in found), found


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_missing_package_is_told_with_the_command_that_installs_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its extra a kind is a problem of the configuration, at its line, not of the first request."""
    monkeypatch.setitem(sys.modules, kind, None)
    (found,) = lines(tmp_path, with_model(f"kind: {kind}, model: m, api_key: MODEL_KEY"), ENVIRONMENT)
    assert f"pip install '.[{kind}]'" in found
    assert "tyrum[" not in found, "the name `tyrum` of a package index is not ours"
    assert found.startswith("3:")
    assert "models.main.kind" in found


def test_the_authorities_of_a_server_are_looked_at_before_it_is_asked(tmp_path: Path) -> None:
    """`ca_file` starts at the file's directory; what is missing, or no certificate, is told at its place."""
    keys = "kind: openai, model: m, api_key: MODEL_KEY, ca_file: {}"
    authority = Authority.create(tmp_path / "tls")
    settings = load(tmp_path, with_model(keys.format("tls/ca.pem")), ENVIRONMENT).models["main"]
    assert isinstance(settings, RemoteModelSettings)
    assert settings.ca_file == authority.pem
    (tmp_path / "empty.pem").write_text("nothing")
    for name, problem in (("gone.pem", "cannot be read: No such file"), ("empty.pem", "no PEM certificate")):
        with pytest.raises(ConfigProblems) as caught:
            load(tmp_path, with_model(keys.format(name)), ENVIRONMENT)
        (found,) = caught.value.problems
        assert "models.main.ca_file: this file" in str(found)
        assert problem in str(found)
        assert f"{tmp_path / 'tyrum.yaml'}:3:" in str(found)
    keys += ", base_url: 'http://127.0.0.1:8000'"
    (useless,) = lines(tmp_path, with_model(keys.format("tls/ca.pem")), ENVIRONMENT)
    assert "models.main.ca_file: a server without TLS shows no certificate" in useless


PROXIED = "kind: openai, model: m, api_key: MODEL_KEY, proxy: '{}'"


def test_a_proxy_is_an_address_and_the_name_of_a_secret(tmp_path: Path) -> None:
    """The address says where, the secret who; nothing stands for them in the environment."""
    environment = ENVIRONMENT | {"HTTPS_PROXY": "http://proxy.example.org:1"}
    keys = PROXIED.format("http://proxy.example.org:3128/") + ", proxy_login: MODEL_KEY"
    settings = load(tmp_path, with_model(keys), environment).models["main"]
    assert isinstance(settings, RemoteModelSettings)
    assert (settings.proxy, settings.proxy_login) == ("http://proxy.example.org:3128", "MODEL_KEY")
    plain = load(tmp_path, with_model("kind: openai, model: m, api_key: MODEL_KEY"), environment).models[
        "main"
    ]
    assert isinstance(plain, RemoteModelSettings)
    assert plain.proxy is None


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://user:canary@proxy.example.org:3128", "into a secret, and name it as `proxy_login`"),
        ("https://canary@proxy.example.org", "into a secret, and name it as `proxy_login`"),
        ("http://user:ca/na#canary@proxy.example.org", "into a secret, and name it as `proxy_login`"),
        ("socks5://canary.example.org:1080", "expected http or https"),
        ("canary.example.org:3128", "expected an address, such as `http://proxy.example.org:3128`"),
        ("http://proxy.example.org:3128/canary", "and nothing behind them"),
        ("http://proxy.example.org:3128?canary", "and nothing behind them"),
        ("http://proxy.example.org:99999", "expected an address"),
    ],
)
def test_what_is_no_proxy_is_refused_with_the_fix(tmp_path: Path, url: str, part: str) -> None:
    """A login in the address, another kind and a path are told at their place, and never repeated."""
    (found,) = lines(tmp_path, with_model(PROXIED.format(url)), ENVIRONMENT)
    assert found.startswith("3:")
    assert "models.main.proxy: " in found
    assert part in found
    assert "canary" not in found


def test_a_proxy_cannot_be_taken_from_the_environment(tmp_path: Path) -> None:
    """Nor from a secret, so the fix is not to declare one; it is told where a login belongs."""
    found = lines(tmp_path, with_model(PROXIED.format("${env:HTTPS_PROXY}")), ENVIRONMENT)
    assert any("write the address out; a login for it" in line and "by name" not in line for line in found)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            PROXIED.format("http://proxy.example.org:1") + ", base_url: 'http://127.0.0.1:1'",
            "proxy: a `base_url` on loopback",
        ),
        (
            PROXIED.format("http://proxy.example.org:1") + ", base_url: 'https://[2001:db8::1]/v1'",
            "proxy: a proxy is asked for a name or an IPv4 address",
        ),
        (
            PROXIED.format("http://proxy.example.org:1") + ", proxy_login: MODEL_KEi",
            "proxy_login: no secret of this name is declared; did you mean `MODEL_KEY`?",
        ),
        (
            "kind: openai, model: m, api_key: MODEL_KEY, proxy_login: MODEL_KEY",
            "proxy_login: a login is shown to a proxy; without `proxy` it has no effect",
        ),
    ],
)
def test_a_proxy_that_cannot_lead_there_is_told(tmp_path: Path, keys: str, expected: str) -> None:
    """A key in the clear, an address that no proxy is asked for, and a login for nobody are problems."""
    (found,) = lines(tmp_path, with_model(keys), ENVIRONMENT)
    assert f"models.main.{expected}" in found


def test_a_proxy_on_this_machine_may_lead_to_a_server_on_it(tmp_path: Path) -> None:
    """Between two ports of this machine a key may travel without TLS."""
    keys = PROXIED.format("http://localhost:3128") + ", base_url: 'http://127.0.0.1:8000/v1'"
    assert lines(tmp_path, with_model(keys), ENVIRONMENT) == []


def test_several_models_are_asked_in_their_order(tmp_path: Path) -> None:
    """One name is a list of one; a list names what is declared, each once."""
    models = "offline: {kind: offline}\n  spare: {kind: offline}"
    text = MINIMAL.replace("offline: {kind: offline}", models)
    assert load(tmp_path, text).agents["default"].models == ("offline",)
    several = text.replace("{model: offline,", "{model: [spare, offline],")
    assert load(tmp_path, several).agents["default"].models == ("spare", "offline")
    place = "6:%d: agents.default.model"
    for given, expected in (
        ("[spare, spare]", f"{place % 28}[1]: listed twice"),
        ("[spare, spar]", f"{place % 28}[1]: no model of this name is declared; did you mean `spare`?"),
        ("[]", f"{place % 20}: must not be empty"),
        ("[spare, 5]", f"{place % 28}[1]: expected text, found a number; quote it to make it text"),
    ):
        found = lines(tmp_path, text.replace("{model: offline,", f"{{model: {given},"))
        assert found == [expected], given
