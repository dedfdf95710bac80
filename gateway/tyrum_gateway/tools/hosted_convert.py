"""A call as the isolation contract has it: its binding, what runs, and how it ended."""

from collections.abc import Mapping

from tyrum_gateway.domain.errors import KernelBug
from tyrum_gateway.domain.process import EndCause, ProcessResult, ProcessRun, StreamEvidence
from tyrum_gateway.domain.tool import Execution
from tyrum_provider_host.isolation_types import (
    FileReference,
    OperationContext,
    ProcessLimits,
    ProcessSpec,
    Workspace,
)
from tyrum_provider_host.isolation_types import ProcessResult as WireResult
from tyrum_provider_host.isolation_types import StreamSummary as WireStream
from tyrum_provider_host.spec import Secret


def context_of(execution: Execution) -> OperationContext:
    """Name the decision under which the kernel calls; every operation of a provider has a binding."""
    if execution.candidate is None or execution.binding_id is None:
        raise KernelBug("an operation of a provider has no binding", operation=execution.operation_id)
    return OperationContext(
        binding_id=execution.binding_id,
        provider_id=execution.candidate.provider_id,
        profile=execution.candidate.profile,
        contract_major=execution.candidate.contract_major,
        actor=execution.principal_id,
        journal_id=execution.candidate.journal_id,
    )


def process_id_of(execution: Execution) -> str:
    """Return the id of the run, which every call of a provider has."""
    if execution.process_id is None:
        raise KernelBug("a run has no process id", operation=execution.operation_id)
    return execution.process_id


def spec_of(run: ProcessRun, secrets: Mapping[str, str]) -> ProcessSpec:
    """Spell what runs, with the values of its secrets."""
    return ProcessSpec(
        program=FileReference(run.program.path, run.program.sha256),
        argv=run.argv,
        workspace=Workspace(run.workspace.path, run.workspace.device, run.workspace.inode),
        limits=ProcessLimits(run.limits.wall_time, run.limits.output_bytes, run.limits.kill_grace),
        env=run.env,
        secret_env={name: Secret(value) for name, value in secrets.items()},
        cwd="" if run.cwd == "." else run.cwd,
        stdin=run.stdin,
        operands=tuple(FileReference(operand.path, operand.sha256) for operand in run.operands),
        required_claims=run.required_claims,
    )


def result_of(result: WireResult) -> ProcessResult:
    """Read how a run ended."""
    return ProcessResult(
        cause=EndCause(result.cause.value),
        exit_code=result.exit_code,
        signal=result.signal,
        duration=result.duration,
        stdout=_evidence(result.stdout),
        stderr=_evidence(result.stderr),
        descendants_killed=result.descendants_killed,
    )


def _evidence(stream: WireStream) -> StreamEvidence:
    return StreamEvidence(stream.total_bytes, stream.sha256, stream.head, stream.tail)
