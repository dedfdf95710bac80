"""A call of `process.run`, resolved: which program, where, with which files and limits, and what policy sees.

Invariant: resolving has no effect and needs no provider; two calls that differ in what would run differ here.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

from tyrum_gateway.domain.policy import Effect, Target
from tyrum_gateway.domain.process import FileIdentity, RunLimits, WorkspaceIdentity
from tyrum_gateway.tools import programs, reach, run_shell, sealing, workspace
from tyrum_gateway.tools.digests import Digests
from tyrum_gateway.tools.run_arguments import RunArguments
from tyrum_gateway.tools.strict_json import ArgumentProblem, shown

NAME = "process.run"
SHELL_ARGUMENTS = ("bash", "--noprofile", "--norc", "-c", "--")
"""What runs a text that follows: after `--` one that begins with `-` or `+` is no option of bash."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What the operator decided about an agent's runs."""

    workspace: WorkspaceIdentity
    search: programs.SearchPath
    limits: RunLimits
    """`wall_time` is the limit of a call that states none, and the most a call may state."""
    required_claims: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    """Names that a call may ask for."""
    concealed: frozenset[str] = frozenset()
    """Secrets that calls cannot name, and whose values are masked in results all the same."""

    @property
    def environment(self) -> dict[str, str]:
        """What every command gets."""
        return {"PATH": self.search.joined(), "HOME": self.workspace.path, "LANG": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Files:
    """The content of a call's files."""

    program: FileIdentity
    may_change: str
    """Why the program may be another when it runs than its content says; empty when it cannot."""
    started: tuple[FileIdentity, ...]
    """Programs that the shell starts."""
    unfixed: frozenset[str]
    """Paths of those that others than root can replace: the shell opens them again."""
    operands: workspace.Operands


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is resolved but for the content of its files."""

    arguments: RunArguments
    program: programs.Program
    argv: tuple[str, ...]
    cwd: str
    limits: RunLimits
    operands: tuple[workspace.Operand, ...]
    plan: run_shell.ShellPlan | None = None
    """Of a call that a shell runs."""
    replaceable: str = ""
    """How others than root can replace the program of a call that no shell runs."""

    @property
    def started(self) -> tuple[programs.Program, ...]:
        """Programs that the shell starts, as far as they are known."""
        return () if self.plan is None else self.plan.programs

    @property
    def cautions(self) -> tuple[str, ...]:
        """How others than root can replace what would run, each said once."""
        commands = () if self.plan is None else self.plan.commands
        reasons = (self.replaceable, *(command.replaceable for command in commands))
        return tuple(dict.fromkeys(reason for reason in reasons if reason))

    def target(self) -> Target:
        """Say what policy may look at."""
        arguments = self.arguments
        target = Target(
            tool=NAME,
            effect=Effect.STATE_CHANGING,
            cwd=self.cwd,
            env=frozenset(arguments.env),
            stdin=bool(arguments.stdin),
            secrets=frozenset(arguments.secrets),
        )
        if self.plan is None:
            return replace(target, program=self.program.path, replaceable=self.replaceable, argv=self.argv)
        return replace(
            target,
            shell=arguments.shell,
            interpreter=self.program.path,
            commands=self.plan.commands,
            opaque=self.plan.opaque,
        )


def resolve(arguments: RunArguments, settings: RunSettings) -> Call:
    """Find program, directory, files and limits of a call.

    Raises:
        ArgumentProblem: There is no such program or directory, a secret is not declared, or a limit is above
            the operator's.
    """
    cwd = workspace.checked_cwd(settings.workspace, arguments.cwd)
    for name in arguments.secrets:
        if name not in settings.secrets:
            raise ArgumentProblem(f"`secrets`: `{shown(name)}` is not declared for this agent")
        if name in settings.environment:
            raise ArgumentProblem(f"`secrets`: `{name}` is part of every command's environment")
    limits = _limits(arguments, settings.limits)
    text = arguments.shell or ""
    # One literal command needs no shell: it is the same call as its words in `argv`.
    argv = run_shell.sole_command(text) if arguments.argv is None else arguments.argv
    if argv is None:
        shell = programs.find_shell(settings.search)
        around = run_shell.Surroundings(settings.search, settings.workspace.path, cwd)
        plan = run_shell.plan(text, shell, around)
        replaceable = any(command.replaceable for command in plan.commands)
        scripts = plan.programs if replaceable else ()
        named = [name for program in scripts for name in _interpreters(program, settings, cwd)]
        operands = workspace.find_operands(settings.workspace, cwd, [*named, *plan.arguments])
        return Call(arguments, shell, (*SHELL_ARGUMENTS, text), cwd, limits, operands, plan)
    try:
        program = programs.resolve(argv[0], settings.search, settings.workspace.path, cwd)
    except ArgumentProblem as problem:
        place = "`argv[0]`" if arguments.argv is not None else "`shell`"
        raise ArgumentProblem(str(problem).replace("`argv[0]`", place, 1)) from None
    why = reach.replaceable(program, settings.workspace.path)
    named = [*(_interpreters(program, settings, cwd) if why else ()), *argv[1:]]
    return Call(
        arguments,
        program,
        argv,
        cwd,
        limits,
        workspace.find_operands(settings.workspace, cwd, named),
        replaceable=why,
    )


def read_files(call: Call, settings: RunSettings, digests: Digests) -> Files:
    """Fix the content of a call's files; blocks while new ones are read.

    Raises:
        ArgumentProblem: A program cannot be read, or the workspace was replaced.
    """
    started = tuple(
        FileIdentity(program.path, programs.content(program, digests).sha256) for program in call.started
    )
    most = workspace.MAX_OPERANDS - len(started)
    content = programs.content(call.program, digests)
    commands = () if call.plan is None else call.plan.commands
    return Files(
        FileIdentity(call.program.path, content.sha256),
        sealing.may_change(call.program, content, call.replaceable),
        started,
        frozenset(command.program for command in commands if command.replaceable),
        workspace.digest_operands(settings.workspace, call.operands, digests, most=most),
    )


def _limits(arguments: RunArguments, limits: RunLimits) -> RunLimits:
    if arguments.timeout_ms is None:
        return limits
    asked = timedelta(milliseconds=arguments.timeout_ms)
    if asked > limits.wall_time:
        most = limits.wall_time // timedelta(milliseconds=1)
        raise ArgumentProblem(f"`timeout_ms` is above the operator's limit of {most}")
    return replace(limits, wall_time=asked)


def _interpreters(program: programs.Program, settings: RunSettings, cwd: str) -> list[str]:
    """Return what interprets a script, and what interprets that, where others than root can replace it."""
    root = settings.workspace.path
    return [name for name in reach.interpreters(program, f"{root}/{cwd}") if reach.opening(name, root)]
