"""`process.run`: one command in the agent's workspace, inside the boundary the operator selected.

Preparing resolves program, directory, files and limits without any effect and shows exactly what would run;
executing hands precisely that to the provider, once. Commands get PATH (the profile's directories), HOME (the
workspace) and LANG=C.UTF-8, then the variables of the call on top; nothing is inherited from the gateway.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import assert_never

import structlog

from tyrum_gateway.domain.errors import ProviderUnavailable
from tyrum_gateway.domain.model import ToolSchema
from tyrum_gateway.domain.process import (
    EndCause,
    ProcessResult,
    ProcessRun,
    Ran,
    Refused,
    RunLimits,
    Unknown,
)
from tyrum_gateway.domain.states import CallState
from tyrum_gateway.domain.tool import Execution, Prepared, Rejected, ToolResult
from tyrum_gateway.tools.digests import Digests
from tyrum_gateway.tools.isolation import (
    PROGRAM_CHANGED,
    UNAVAILABLE,
    WORKSPACE_CHANGED,
    Isolation,
    RunAnswer,
    Running,
)
from tyrum_gateway.tools.run_arguments import SCHEMA, parse_arguments
from tyrum_gateway.tools.run_call import NAME, Call, Files, RunSettings, read_files, resolve
from tyrum_gateway.tools.run_content import describe, redact
from tyrum_gateway.tools.run_subject import Shown, subject_of
from tyrum_gateway.tools.strict_json import ArgumentProblem
from tyrum_gateway.tools.walking import TooManyLooks, budgeted

_WAIT_SLICE = 60.0
_END_MARGIN = 10.0
RESOLVE_SECONDS = 30.0
"""How long resolving one call may take, the reading of its files included."""

_WALKS = 4
"""Calls of an agent that are resolved at once. A file system that does not answer holds these threads, and no
others: the calls behind them are refused in time."""

DECLARATION = ToolSchema(
    NAME,
    "Runs one command in the workspace and returns how it ended and what it printed. Exactly one of `argv` "
    "and `shell` must be given. Nothing runs on in the background: what a command has started ends with it.",
    SCHEMA,
)
"""What models are told."""

_log = structlog.get_logger("tyrum.tools")


class SecretUnavailable(Exception):
    """A declared secret cannot be had now; the text names it and never holds a value."""


SecretResolver = Callable[[str], str]
"""Fetches a declared secret by name; may block; raises `SecretUnavailable`."""


class ProcessRunTool:
    """The tool. One per agent; keeps nothing between calls but digests of unchanged files."""

    def __init__(self, settings: RunSettings, isolation: Isolation, secrets: SecretResolver) -> None:
        self._settings = settings
        self._isolation = isolation
        self._secrets = secrets
        self._digests = Digests()
        self._walks = ThreadPoolExecutor(_WALKS, thread_name_prefix="resolve")

    @property
    def schema(self) -> ToolSchema:
        """What the model is told."""
        return DECLARATION

    def available(self) -> bool:
        """Tell whether the profile's provider is admitted with its required claims."""
        try:
            self._isolation.candidate()
        except ProviderUnavailable:
            return False
        return True

    async def prepare(self, arguments: str) -> Prepared | Rejected:
        """Check and resolve a call, in a thread: what a model's bytes make long holds up no other turn.

        Raises:
            ProviderUnavailable: The provider is not admitted, or a required claim is not PROVED.
        """
        candidate = self._isolation.candidate()
        boundary = self._isolation.boundary()
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                resolving = asyncio.get_running_loop().run_in_executor(self._walks, self._resolved, arguments)
                call, files = await resolving
        except (ArgumentProblem, TooManyLooks) as problem:
            return Rejected(str(problem))
        except TimeoutError:
            return Rejected(f"the files that the call names could not be read within {RESOLVE_SECONDS:g} s")
        run = ProcessRun(
            program=files.program,
            argv=call.argv,
            env={**self._settings.environment, **call.arguments.env},
            workspace=self._settings.workspace,
            cwd=call.cwd,
            stdin=call.arguments.stdin.encode(),
            operands=(*files.started, *files.operands.fixed),
            limits=call.limits,
            required_claims=self._settings.required_claims,
            secrets=call.arguments.secrets,
        )
        shown = Shown(
            tool=NAME,
            run=run,
            shell=call.arguments.shell if call.plan is not None else None,
            text=call.arguments.shell,
            unclear="" if call.plan is None else call.plan.opaque,
            commands=() if call.plan is None else tuple(command.argv for command in call.plan.commands),
            started=len(files.started),
            may_change=files.may_change,
            unfixed=files.unfixed,
            replaceable=call.cautions,
            given_env=call.arguments.env,
            open_operands=files.operands.open,
            candidate=candidate,
            boundary=boundary,
        )
        return Prepared(NAME, call.target(), partial(subject_of, shown), candidate, run)

    def _resolved(self, arguments: str) -> tuple[Call, Files]:
        with budgeted():
            call = resolve(parse_arguments(arguments), self._settings)
            return call, read_files(call, self._settings, self._digests)

    async def execute(self, prepared: Prepared, execution: Execution) -> ToolResult:
        """Run the command once and wait for its end."""
        run = prepared.run
        if run is None or prepared.candidate is None:
            raise TypeError("prepared by another tool")
        try:
            present = self._isolation.candidate()
        except ProviderUnavailable as error:
            return _refused(Refused(UNAVAILABLE, error.public))
        if present.shown() != prepared.candidate.shown():
            return ToolResult(CallState.FAILED, "not executed: the provider changed", subject_changed=True)
        try:
            secrets = await self._project(run.secrets)
        except SecretUnavailable as error:
            return ToolResult(CallState.FAILED, f"not executed: {error}")
        answer = await self._isolation.start(execution, run, secrets)
        if isinstance(answer, Running):
            answer = await self._await_end(execution, run.limits)
        # A command may also print what an earlier one was given and has kept in a file.
        return self._result(answer, (*secrets.values(), *await self._declared_secrets()))

    async def settle(self, execution: Execution) -> ToolResult:
        """Ask the provider's journal what became of a call; waits at most 20 s for the provider itself."""
        answer = await self._isolation.resolve(execution)
        if isinstance(answer, Running):
            answer = await self._await_end(execution, self._settings.limits)
        return self._result(answer, await self._declared_secrets())

    async def stop(self, execution: Execution) -> None:
        """End the command tree, best effort."""
        await self._isolation.cancel(execution)

    async def release(self, execution: Execution) -> None:
        """Let the provider forget the run; to be called once the result is committed. Best effort."""
        await self._isolation.release(execution)

    async def _project(self, names: tuple[str, ...]) -> Mapping[str, str]:
        if not names:
            return {}
        return await asyncio.to_thread(lambda: {name: self._secrets(name) for name in names})

    async def _declared_secrets(self) -> tuple[str, ...]:
        """Fetch what no result may show.

        What runs may have been given, before a crash too; and all other secrets of the gateway, which a
        command without confinement may find by itself.
        """
        values = []
        for name in sorted(self._settings.secrets | self._settings.concealed):
            try:
                values.append(await asyncio.to_thread(self._secrets, name))
            except SecretUnavailable as error:
                _log.warning("secret_unavailable_for_redaction", secret=name, reason=str(error))
        return tuple(values)

    async def _await_end(self, execution: Execution, limits: RunLimits) -> RunAnswer:
        """Wait as long as the provider may need to end the run by itself."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (limits.wall_time + limits.kill_grace).total_seconds() + _END_MARGIN
        while (left := until - loop.time()) > 0:
            answer = await self._isolation.wait(execution, min(left, _WAIT_SLICE))
            if not isinstance(answer, Running):
                return answer
        return Unknown("the provider did not report its end in time")

    def _result(self, answer: RunAnswer, secrets: tuple[str, ...]) -> ToolResult:
        match answer:
            case Ran(result=result):
                return _ran(redact(result, secrets))
            case Refused(reason=reason):
                if reason in {PROGRAM_CHANGED, WORKSPACE_CHANGED}:
                    self._digests.forget()
                    return ToolResult(
                        CallState.FAILED, f"not executed: {answer.message}", subject_changed=True
                    )
                return _refused(answer)
            case Unknown(message=message):
                return _unknown(message)
            case Running():
                return _unknown("it was still running when it was last seen")
            case _:
                assert_never(answer)


def _ran(result: ProcessResult) -> ToolResult:
    match result.cause:
        case EndCause.EXITED | EndCause.SIGNALED:
            return ToolResult(CallState.SUCCEEDED, describe(result), result)
        case EndCause.LOST:
            return replace(_unknown("the run began and its end was not seen"), process=result)
        case _:
            return ToolResult(CallState.FAILED, describe(result), result)


def _refused(refusal: Refused) -> ToolResult:
    return ToolResult(CallState.FAILED, f"not executed: {refusal.message}")


def _unknown(why: str) -> ToolResult:
    return ToolResult(
        CallState.OUTCOME_UNKNOWN,
        f"outcome unknown: {why}. Nobody can tell whether or how far the command ran; do not repeat it "
        "blindly.",
    )
