"""A real gateway whose model is a scenario of the scripted model server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import configs
from tests.support.gateway import RunningGateway, serving
from tests.support.model_server.server import KEY, ModelServer

VARIABLE = "PLANTED_MODEL_KEY"
"""Environment variable of the gateway that holds the key."""


def write(
    directory: Path,
    server: ModelServer,
    protocol: str,
    scenario: str,
    *,
    rules: str = configs.COUNTING_RULE,
    more: str = "",
) -> Path:
    """Write a configuration whose agent asks a scenario; return its path.

    Args:
        directory: Where to.
        server: Must be serving.
        protocol: `openai` or `anthropic`.
        scenario: Name of the scenario.
        rules: Items of the only bundle's rules.
        more: Further sections, besides `secrets`.
    """
    secrets = f"secrets: {{MODEL_KEY: '${{env:{VARIABLE}}}'}}\n"
    config = configs.write(directory, rules=rules, more=secrets + more)
    text = config.read_text(encoding="utf-8")
    scripted = f"{{kind: scripted, script: {directory / 'script.yaml'}}}"
    asked = f"kind: {protocol}, model: made-up-1, base_url: '{server.base_url(protocol, scenario)}'"
    assert scripted in text
    config.write_text(text.replace(scripted, f"{{{asked}, api_key: MODEL_KEY}}"), encoding="utf-8")
    return config


@contextmanager
def asking(
    directory: Path,
    server: ModelServer,
    protocol: str,
    scenario: str,
    *,
    rules: str = configs.COUNTING_RULE,
    more: str = "",
) -> Iterator[RunningGateway]:
    """Run a gateway whose agent asks a scenario; the arguments are those of `write`."""
    config = write(directory, server, protocol, scenario, rules=rules, more=more)
    with serving(directory, config, {VARIABLE: KEY}) as gateway:
        yield gateway
