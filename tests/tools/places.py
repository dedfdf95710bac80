"""What the tool tests share: an admitted provider, a workspace, and a tool over both."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tyrum_gateway.domain.process import ProcessRun, RunLimits, WorkspaceIdentity
from tyrum_gateway.domain.tool import Prepared, Rejected
from tyrum_gateway.tools.hosted_isolation import HostedIsolation
from tyrum_gateway.tools.process_run import ProcessRunTool, SecretUnavailable
from tyrum_gateway.tools.programs import SearchPath
from tyrum_gateway.tools.run_call import RunSettings
from tyrum_gateway.tools.workspace import prepare_workspace
from tyrum_provider_host.host import ProviderHost

LIMITS = RunLimits(timedelta(seconds=20), 1 << 20, timedelta(milliseconds=200))
SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Bench:
    """A tool with its surroundings."""

    tool: ProcessRunTool
    workspace: Path
    programs: Path
    """The operator's first directory of programs."""

    def waiting(self) -> bool:
        """Tell whether a start waits for a place at the provider."""
        isolation = self.tool._isolation
        assert isinstance(isolation, HostedIsolation)
        return isolation._places.locked()

    @property
    def identity(self) -> WorkspaceIdentity:
        """The workspace as it is now."""
        return prepare_workspace(self.workspace)

    async def prepare(self, **arguments: Any) -> Prepared:
        """Prepare a call that must be valid."""
        prepared = await self.tool.prepare(json.dumps(arguments))
        assert isinstance(prepared, Prepared), prepared
        return prepared

    async def shell(self, text: str, **arguments: Any) -> Prepared:
        """Prepare a call of shell text that must be valid."""
        return await self.prepare(**{"shell": text, **arguments})

    async def run_of(self, **arguments: Any) -> ProcessRun:
        """Return what would run."""
        prepared = await self.prepare(**arguments)
        assert prepared.run is not None
        return prepared.run

    async def problem(self, arguments: str | Mapping[str, Any]) -> str:
        """Prepare a call that must be rejected, and return why."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        rejected = await self.tool.prepare(text)
        assert isinstance(rejected, Rejected), rejected
        return rejected.problem


def bench(
    host: ProviderHost,
    directory: Path,
    *,
    provider: str = "chosen",
    limits: RunLimits = LIMITS,
    secrets: Mapping[str, str] | None = None,
    required_claims: tuple[str, ...] = (),
    known_secrets: frozenset[str] | None = None,
) -> Bench:
    """Build a tool over an admitted provider, with a workspace and a directory of programs of its own."""
    workspace, programs = directory / "workspace", directory / "programs"
    programs.mkdir(parents=True)
    values = dict(secrets or {})

    def resolve(name: str) -> str:
        if name not in values:
            raise SecretUnavailable(f"secret `{name}` cannot be had")
        return values[name]

    settings = RunSettings(
        workspace=prepare_workspace(workspace),
        search=SearchPath((str(programs), *SYSTEM)),
        limits=limits,
        required_claims=required_claims,
        secrets=frozenset(values) if known_secrets is None else known_secrets,
    )
    isolation = HostedIsolation(host, provider=provider, profile="default", required_claims=required_claims)
    return Bench(ProcessRunTool(settings, isolation, resolve), workspace, programs)


def script(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    # Old enough for its digest to be remembered.
    os.utime(path, (1, 1))
    return path
