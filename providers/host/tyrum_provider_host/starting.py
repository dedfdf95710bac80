"""Admission until a process runs: what needs no process, the artifact, the launch.

Invariant: nothing is executed that is not the pinned artifact, or whose kind, trust or deployment mode the
contract does not admit.
"""

import asyncio
from pathlib import Path

from tyrum_provider_host import proof
from tyrum_provider_host.artifact import ArtifactError, describe, measure
from tyrum_provider_host.contracts import DeploymentMode, KindContract
from tyrum_provider_host.launch import LaunchError, create_directory, environment, spawn
from tyrum_provider_host.record import AdmissionRecord, HostFacts, Instance
from tyrum_provider_host.rejection import OPERATOR, SHORTAGES, Rejected, Stage, listed
from tyrum_provider_host.spec import ProviderSpec


def agree_beforehand(spec: ProviderSpec, host: HostFacts) -> KindContract:
    """Check what needs no process: the kind is known, and the operator's trust and deployment fit it.

    Raises:
        Rejected: they do not.
    """
    contract = host.contracts.get(spec.kind)
    if contract is None:
        raise Rejected(
            Stage.CONTRACT,
            "this gateway has no contract for the kind",
            expected=f"one of {', '.join(sorted(host.contracts))}",
            found=spec.kind,
            action=f"{OPERATOR}: correct the kind, or upgrade the gateway",
        )
    if spec.deployment not in contract.deployment_modes:
        raise Rejected(
            Stage.TRUST,
            f"the contract {contract.label} does not admit the configured deployment mode",
            expected=listed(contract.deployment_modes),
            found=spec.deployment,
            action=f"{OPERATOR}: configure an admitted deployment mode",
        )
    if spec.trust not in contract.trusts:
        raise Rejected(
            Stage.TRUST,
            f"the contract {contract.label} does not admit the configured trust",
            expected=listed(contract.trusts),
            found=spec.trust,
            action=f"{OPERATOR}: configure an admitted trust",
        )
    assert spec.deployment is DeploymentMode.LOCAL_PROCESS
    return contract


async def measure_artifact(spec: ProviderSpec, record: AdmissionRecord) -> None:
    """Hash what will be executed and compare it with the operator's pin.

    Raises:
        Rejected: it cannot be read, or differs from the pin.
    """
    try:
        artifact = await asyncio.to_thread(measure, spec.command)
    except ArtifactError as error:
        raise Rejected(
            Stage.ARTIFACT,
            str(error),
            action=f"{OPERATOR}: install the provider or correct its command",
            passes=error.passing,
        ) from None
    record.artifact = artifact
    if spec.artifact_sha256 is not None:
        pinned = "sha256:" + spec.artifact_sha256.removeprefix("sha256:")
        if artifact.digest != pinned:
            raise Rejected(
                Stage.ARTIFACT,
                f"the artifact is not the pinned one ({artifact.coverage})",
                expected=pinned,
                found=artifact.digest,
                action=f"{OPERATOR}: install the pinned build, or change the pin after reviewing this one",
            )
    record.passed(Stage.ARTIFACT, f"{artifact.digest} over {artifact.coverage}", artifact=artifact.digest)


async def launch(
    spec: ProviderSpec, host: HostFacts, record: AdmissionRecord, *, instance_id: str, token: bytes
) -> Instance:
    """Create directory and process.

    Raises:
        Rejected: the directory cannot be made or the program not executed.
    """
    state = host.state_directory / spec.name
    try:
        await asyncio.to_thread(_private_directory, state)
        directory = await asyncio.to_thread(create_directory, host.runtime_directory)
    except LaunchError as error:
        raise Rejected(
            Stage.SPAWN,
            str(error),
            action=f"{OPERATOR}: correct the directories",
            passes=error.passing,
        ) from None
    record.ring.redact((proof.encode(token), proof.bearer(token)))
    try:
        process = spawn(
            spec.command,
            environment=environment(
                directory=directory, state_directory=state, instance_id=instance_id, allowed=spec.environment
            ),
            token_line=proof.encode(token).encode() + b"\n",
            ring=record.ring,
        )
    except OSError as error:
        await asyncio.to_thread(directory.remove)
        program = Path(spec.command[0])
        facts = await asyncio.to_thread(describe, program)
        raise Rejected(
            Stage.SPAWN,
            f"{program} cannot be executed: {error.strerror} ({facts})",
            action=f"{OPERATOR}: free descriptors, processes or memory"
            if error.errno in SHORTAGES
            else f"{OPERATOR}: install a build for this machine and make it executable",
            passes=error.errno in SHORTAGES,
        ) from None
    record.passed(Stage.SPAWN, f"pid {process.pid}", alive=True)
    return Instance(spec, process, directory, host.bounds, record.ring)


def _private_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except OSError as error:
        raise LaunchError(f"the state directory {path} cannot be used: {error.strerror}", error) from None
