"""The provider's side of the control plane, for providers written in Python.

An author writes a class with the members of `Provider` and calls `run`; the kit does the rest of
`tyrum.provider.v1`: token and proof, bearer check, configuration, health, drain, shutdown, lifeline, and
the one error shape (ARCH-29). Providers in other languages need the contracts and the handshake vectors only.
"""

import tyrum_provider_kit._fork_support  # noqa: F401 - must come first, it says why
from tyrum_provider_kit.definition import (
    Cardinality,
    DeploymentMode,
    ProviderDefinition,
    SecretSlot,
    Trust,
)
from tyrum_provider_kit.environment import Environment, Misconfigured
from tyrum_provider_kit.errors import ServiceError, field_invalid
from tyrum_provider_kit.invalid_definition import InvalidDefinition
from tyrum_provider_kit.journal import journal_identity
from tyrum_provider_kit.provider import Provider
from tyrum_provider_kit.report import CapabilityState, Condition, ConditionStatus, ProbeReport
from tyrum_provider_kit.schema import Violation
from tyrum_provider_kit.serve import run

__all__ = [
    "CapabilityState",
    "Cardinality",
    "Condition",
    "ConditionStatus",
    "DeploymentMode",
    "Environment",
    "InvalidDefinition",
    "Misconfigured",
    "ProbeReport",
    "Provider",
    "ProviderDefinition",
    "SecretSlot",
    "ServiceError",
    "Trust",
    "Violation",
    "field_invalid",
    "journal_identity",
    "run",
]
