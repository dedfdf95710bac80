"""The operator's YAML: loading, validation with positions, secrets."""

from tyrum_gateway.config.environment import config_file
from tyrum_gateway.config.load import (
    certificate_warnings,
    check_file,
    check_files,
    load_settings,
    quickstart_path,
)
from tyrum_gateway.config.problems import ConfigProblems, Problem
from tyrum_gateway.config.secrets import SecretReference, SecretUnavailable, SecretValue
from tyrum_gateway.config.settings import (
    AgentSettings,
    IsolationProfileSettings,
    LimitSettings,
    ListenSettings,
    ModelSettings,
    OfflineModelSettings,
    ProviderSettings,
    RemoteModelSettings,
    ScriptedModelSettings,
    Settings,
    TcpAddress,
    TlsSettings,
)

__all__ = [
    "AgentSettings",
    "ConfigProblems",
    "IsolationProfileSettings",
    "LimitSettings",
    "ListenSettings",
    "ModelSettings",
    "OfflineModelSettings",
    "Problem",
    "ProviderSettings",
    "RemoteModelSettings",
    "ScriptedModelSettings",
    "SecretReference",
    "SecretUnavailable",
    "SecretValue",
    "Settings",
    "TcpAddress",
    "TlsSettings",
    "certificate_warnings",
    "check_file",
    "check_files",
    "config_file",
    "load_settings",
    "quickstart_path",
]
