"""The kinds of models that can be configured, and how each is built."""

from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from tyrum_gateway.domain.model import Model
from tyrum_gateway.models.endpoint import Endpoint
from tyrum_gateway.models.offline import OfflineModel
from tyrum_gateway.models.script import load_script
from tyrum_gateway.models.scripted import ScriptedModel


@dataclass(frozen=True, slots=True)
class Offline:
    """Deterministic answers and directives."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """Steps from a file."""

    script: Path


@dataclass(frozen=True, slots=True)
class OpenAi:
    """Chat Completions of OpenAI or a compatible server."""

    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Anthropic:
    """Messages of Anthropic or a compatible server."""

    endpoint: Endpoint


ModelSettings = Offline | Scripted | OpenAi | Anthropic
"""What the operator chose."""


def build_model(settings: ModelSettings) -> Model:
    """Build a transport; the SDK of a kind is imported when one of it is built.

    Raises:
        ScriptInvalid: The script of a scripted model cannot be used.
    """
    match settings:
        case Offline():
            return OfflineModel()
        case Scripted(script=script):
            return ScriptedModel(load_script(script))
        case OpenAi(endpoint=endpoint):
            from tyrum_gateway.models.openai_sdk import ChatCompletions  # noqa: PLC0415 - an extra, and heavy
            from tyrum_gateway.models.remote import RemoteModel  # noqa: PLC0415

            return RemoteModel(endpoint, ChatCompletions(endpoint))
        case Anthropic(endpoint=endpoint):
            from tyrum_gateway.models.anthropic_sdk import Messages  # noqa: PLC0415 - an extra, and heavy
            from tyrum_gateway.models.remote import RemoteModel  # noqa: PLC0415

            return RemoteModel(endpoint, Messages(endpoint))
        case _:
            assert_never(settings)
