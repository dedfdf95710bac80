"""The kinds of models that can be configured, and how each is built."""

from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from tyrum_gateway.domain.model import Model
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


ModelSettings = Offline | Scripted
"""What the operator chose."""


def build_model(settings: ModelSettings) -> Model:
    """Build a transport.

    Raises:
        ScriptInvalid: The script of a scripted model cannot be used.
    """
    match settings:
        case Offline():
            return OfflineModel()
        case Scripted(script=script):
            return ScriptedModel(load_script(script))
        case _:
            assert_never(settings)
