"""`tyrum doctor`: what could keep the gateway from working here, each finding with one fix.

Invariant: it changes nothing, and a check that could not be made is never reported as passed.
"""

import asyncio
import os
import shlex
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli import doctor_storage
from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.finding import Finding, Result
from tyrum_gateway.cli.options import Output, StateDir, sub_app
from tyrum_gateway.cli.output import Format, counted, emit, prose
from tyrum_gateway.cli.state_dir import chosen_state_dir, state_dir_option
from tyrum_gateway.cli.version import installed

if TYPE_CHECKING:
    from tyrum.catalog.v1.catalog_pb2 import GetProviderResponse
    from tyrum_gateway.cli.connection import Target
    from tyrum_gateway.config.load import CheckedFile

app = sub_app("Check this machine and the running gateway.")

_SQLITE = (3, 35, 0)
_HEALTH_SECONDS = 5.0


@app.command()
def doctor(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Configuration. Default: TYRUM_CONFIG, else the quickstart."
        ),
    ] = None,
    state_dir: StateDir = None,
    output: Output = Format.TEXT,
) -> None:
    """Check this machine, the configuration and the running gateway; exits with 1 when a check fails."""
    directory = chosen_state_dir(state_dir)
    findings: list[Finding] = []
    for finding in _findings(directory, config):
        findings.append(finding)
        if output is not Format.JSON:
            _print(finding, output)
    if output is Format.JSON:
        emit([asdict(finding) for finding in findings], output)
    if any(finding.result is Result.FAIL for finding in findings):
        raise typer.Exit(ExitCode.FAILURE)


def _print(finding: Finding, output: Format) -> None:
    if output is Format.JSONL:
        emit(asdict(finding), output)
        return
    prose(f"{finding.result:<4}  {finding.check}: {finding.detail}", indentation=6)
    if finding.fix:
        prose(f"      fix: {finding.fix}", indentation=8)


def _findings(directory: Path, config: Path | None) -> Iterator[Finding]:
    yield _python()
    yield _sqlite()
    yield _user()
    yield state_directory(directory)
    if os.access(directory, os.R_OK | os.X_OK):
        yield doctor_storage.database(directory)
    yield doctor_storage.disk(directory)
    yield _token(directory)
    yield _sockets()
    yield from _configuration(config, directory)
    yield from asyncio.run(_gateway(directory))


def _python() -> Finding:
    return Finding("python", Result.OK, f"{sys.version.split()[0]} at `{sys.executable}`")


def _sqlite() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < _SQLITE:
        return Finding("sqlite", Result.FAIL, version, "use a Python built with SQLite 3.35 or newer")
    return Finding("sqlite", Result.OK, version)


def _user() -> Finding:
    if os.geteuid() == 0:
        detail = "root: what agents run without confinement can do everything here"
        return Finding("user", Result.WARN, detail, "run the gateway as a user of its own")
    return Finding("user", Result.OK, f"uid {os.geteuid()}")


def state_directory(directory: Path) -> Finding:
    """Check that a state directory is there, private and the caller's, or that it can be made."""
    check, another = "state directory", "choose another: --state-dir DIR"
    try:
        status = directory.stat()
    except FileNotFoundError:
        above = next(parent for parent in directory.parents if os.path.lexists(parent))
        if problem := _unwritable(above):
            return Finding(check, Result.FAIL, f"`{directory}` cannot be made: {problem}", another)
        return Finding(check, Result.OK, f"`{directory}` will be made by `tyrum serve`")
    except OSError as error:
        return Finding(check, Result.FAIL, f"`{directory}`: {error.strerror}", another)
    if not stat.S_ISDIR(status.st_mode):
        return Finding(check, Result.FAIL, f"`{directory}` is no directory", another)
    if status.st_uid != os.geteuid():
        owner = f"`{directory}` belongs to uid {status.st_uid}"
        return Finding(check, Result.FAIL, owner, f"run as that user, or: chown {os.geteuid()} {directory}")
    mode = f"(mode {stat.S_IMODE(status.st_mode):04o})"
    if status.st_mode & 0o077:
        return Finding(
            check, Result.FAIL, f"`{directory}` can be entered by others {mode}", f"chmod 700 {directory}"
        )
    if problem := _unwritable(directory, os.R_OK):
        return Finding(check, Result.FAIL, f"{problem} {mode}", f"chmod 700 {directory}, or {another}")
    return Finding(check, Result.OK, f"`{directory}`")


def _token(directory: Path) -> Finding:
    from tyrum_gateway.cli.connection import token_file, token_problem  # noqa: PLC0415 - imports grpc

    path = token_file(directory)
    if not path.exists() and path.parent == directory:
        return Finding("token", Result.OK, "will be made by the first `tyrum serve`")
    problem, fix = token_problem(path, directory)
    if problem:
        return Finding("token", Result.FAIL, problem, fix)
    return Finding("token", Result.OK, f"`{path}`")


def _sockets() -> Finding:
    """Check that one of the places for sockets can hold a private directory."""
    bases = [Path("/run")] if os.geteuid() == 0 else []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    bases += [Path(runtime)] if runtime else []
    bases.append(Path(tempfile.gettempdir()))
    problems = []
    for base in bases:
        own = base / (f"tyrum-{os.geteuid()}" if base == bases[-1] else "tyrum")
        problem = _unusable(own) if own.exists() else _unwritable(base)
        if not problem:
            return Finding("socket directory", Result.OK, f"`{own}`")
        problems.append(problem)
    fix = "set XDG_RUNTIME_DIR to a private directory"
    return Finding("socket directory", Result.FAIL, "; ".join(problems), fix)


def _unusable(directory: Path) -> str:
    status = directory.lstat()
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    return "" if private else f"`{directory}` is not a private directory of this user"


def _unwritable(directory: Path, besides: int = 0) -> str:
    writable = os.access(directory, besides | os.W_OK | os.X_OK, effective_ids=True)
    return "" if writable else f"`{directory}` cannot be written"


def _configuration(config: Path | None, directory: Path) -> Iterator[Finding]:
    """Check the file that was named, else the one that the gateway of this state directory serves."""
    from tyrum_gateway.config import ConfigProblems, check_file, config_file  # noqa: PLC0415 - heavy
    from tyrum_gateway.config.checks import find_program  # noqa: PLC0415

    path, served = config_file(config), _served(directory)
    if served is not None and config is None and not os.environ.get("TYRUM_CONFIG"):
        path = served
    if served is not None and path.absolute() != served:
        other = f"the gateway serves `{served}`, and `{path}` is checked here"
        yield Finding(
            "configuration", Result.WARN, other, f"tyrum doctor --config {shlex.quote(str(served))}"
        )
    try:
        checked = check_file(path, environment=os.environ)
    except ConfigProblems as problems:
        command = f"tyrum config validate {path}"
        found = f"{counted(len(problems.problems), 'problem')} in `{path}`"
        yield Finding("configuration", Result.FAIL, found, command)
        return
    yield Finding("configuration", Result.OK, f"`{path}`")
    yield from _files(checked, directory)
    for name, provider in checked.content.providers.items():
        program = find_program(provider.command[0], os.environ)
        if program is None:
            missing = f"`{provider.command[0]}` is not found"
            yield Finding(f"provider {name}", Result.FAIL, missing, "install it, or correct its `command`")
        else:
            yield Finding(f"provider {name}", Result.OK, f"`{program}`")
    yield from _models(path, directory)


def _models(path: Path, directory: Path) -> Iterator[Finding]:
    """Ask the server of each model one harmless thing."""
    from tyrum_gateway.bootstrap.model_probe import probe_models  # noqa: PLC0415 - heavy
    from tyrum_gateway.config import ConfigProblems, load_settings  # noqa: PLC0415

    try:
        settings = load_settings(path, environment=os.environ, state_dir=directory)
    except ConfigProblems:
        return  # told already
    for probed in asyncio.run(probe_models(settings, installed())):
        fix = f"look at `models.{probed.model}` in `{path}`: base_url, model, api_key, ca_file, proxy"
        yield Finding(
            f"model {probed.model}",
            Result(probed.result),
            probed.detail,
            "" if probed.result == "ok" else fix,
        )


def _files(checked: "CheckedFile", directory: Path) -> Iterator[Finding]:
    """Check that the files which the configuration names can be used, and the gateway's own certificate."""
    from tyrum_gateway.config import ConfigProblems, certificate_warnings, check_files  # noqa: PLC0415 - heavy

    try:
        check_files(checked, directory)
    except ConfigProblems as problems:
        for problem in problems.problems:
            check = "certificate" if problem.code == "certificate" else "audit heads"
            yield Finding(check, Result.FAIL, problem.message, f"tyrum config validate {checked.path}")
        return
    tls = checked.content.listen.tls
    if tls is None:
        return
    warnings = [problem.message for problem in certificate_warnings(checked)]
    for warning in warnings:
        result = Result.FAIL if warning.endswith(": clients refuse it") else Result.WARN
        fix = "renew it; a running gateway serves the new one by itself"
        yield Finding("certificate", result, warning, fix)
    if not warnings:
        yield Finding("certificate", Result.OK, f"`{checked.directory / tls.cert}`")


def _served(directory: Path) -> Path | None:
    from tyrum_gateway.cli.connection import announcement  # noqa: PLC0415 - imports grpc

    config = (announcement(directory) or {}).get("config")
    return Path(config) if isinstance(config, str) else None


async def _gateway(directory: Path) -> list[Finding]:
    from tyrum_gateway.cli.connection import announcement, find  # noqa: PLC0415 - imports grpc

    if announcement(directory) is None:
        start = f"tyrum serve{state_dir_option(directory)}"
        unseen = (
            "none runs with this state directory; what a provider's boundary is worth shows once one does"
        )
        return [Finding("gateway", Result.WARN, unseen, start)]
    try:
        target = find(directory, None)
        return await _running(target)
    except Failure as failure:
        return [Finding("gateway", Result.FAIL, failure.message, failure.hint)]


async def _running(target: "Target") -> list[Finding]:
    from tyrum.catalog.v1.catalog_pb2 import PROVIDER_LIFECYCLE_ADMITTED  # noqa: PLC0415
    from tyrum_gateway.cli.catalog import lifecycle, provider, providers  # noqa: PLC0415
    from tyrum_gateway.cli.connection import connect, healthy  # noqa: PLC0415

    findings = []
    async with connect(target) as gateway:
        if await healthy(gateway, _HEALTH_SECONDS):
            findings.append(Finding("gateway", Result.OK, f"serves at `{target.address}`"))
        else:
            findings.append(Finding("gateway", Result.FAIL, "runs and does not serve", "look at its log"))
        for item in await providers(gateway):
            check, explain = f"running provider {item.name}", f"tyrum providers explain {item.name}"
            if item.lifecycle == PROVIDER_LIFECYCLE_ADMITTED:
                findings.append(Finding(check, Result.OK, "admitted"))
                change = "change `required_claims` or the profile's `provider`"
                findings += [Finding(check, Result.FAIL, text, change) for text in item.profile_problems]
                findings += _boundary(await provider(gateway, item.name), explain)
            else:
                why = f"{lifecycle(item)}: {item.reason}"
                findings.append(Finding(check, Result.FAIL, why.removesuffix(": "), explain))
    return findings


def _boundary(explained: "GetProviderResponse", explain: str) -> list[Finding]:
    """Say whose power commands have and what the boundary is worth; nothing for a kind without claims."""
    from tyrum_provider_host.claims import CLAIMS, worth  # noqa: PLC0415 - imports grpc

    if not explained.claims:
        return []
    statuses = dict(claim.split(": ", 1) for claim in explained.claims)
    shared = explained.shares_gateway_user
    user = "the gateway's user" if shared else f"uid {explained.run_uid}"
    proved = worth(statuses)
    good = not shared and proved == worth(dict.fromkeys(CLAIMS, "PROVED"))
    return [
        Finding(
            f"boundary of {explained.provider.name}",
            Result.OK if good else Result.WARN,
            f"commands run as {user}; {proved}",
            "" if good else explain,
        )
    ]
