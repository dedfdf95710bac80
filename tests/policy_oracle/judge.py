"""Asks the product about a text, by the way a model's call takes: as arguments of `process.run`."""

import json
from datetime import timedelta

from tests.policy_oracle.oracle import Allowed, Commands, NotAllowed
from tests.policy_oracle.rules import bundle
from tests.policy_oracle.sandbox import Sandbox
from tyrum_gateway.domain.policy import Decision, evaluate
from tyrum_gateway.domain.process import RunLimits
from tyrum_gateway.tools.programs import SearchPath
from tyrum_gateway.tools.run_arguments import parse_arguments
from tyrum_gateway.tools.run_call import SHELL_ARGUMENTS, RunSettings, resolve
from tyrum_gateway.tools.shell import Operator, Script, parse
from tyrum_gateway.tools.strict_json import ArgumentProblem
from tyrum_gateway.tools.workspace import prepare_workspace

_LIMITS = RunLimits(timedelta(seconds=20), 1 << 20, timedelta(milliseconds=200))


class ProductJudge:
    """What the product would do with shell text in a sandbox, under the bundle of the oracle's rules."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._bundle = bundle(sandbox.programs)
        self._settings = RunSettings(
            workspace=prepare_workspace(sandbox.workspace),
            search=SearchPath((str(sandbox.programs),)),
            limits=_LIMITS,
        )

    def __call__(self, text: str) -> Allowed | NotAllowed:
        """Decide; what is allowed comes with the commands that were read.

        Raises:
            AssertionError: What was allowed is not what would run.
        """
        read = parse(text)
        commands = _commands(read) if isinstance(read, Script) else None
        try:
            call = resolve(parse_arguments(json.dumps({"shell": text})), self._settings)
        except ArgumentProblem:
            return NotAllowed(commands)
        target = call.target()
        if evaluate(self._bundle, target).decision is not Decision.ALLOW:
            return NotAllowed(commands)
        assert commands is not None, "text that was not read is allowed"
        if target.shell is None:
            assert (call.argv,) == commands.all, "other words would run"
            assert target.argv == call.argv, "other words were allowed"
        else:
            assert call.argv == (*SHELL_ARGUMENTS, text), "another text would run"
            assert tuple(command.argv for command in target.commands) == commands.all
        return Allowed(commands)


def _commands(script: Script) -> Commands:
    pipelines = [[script.commands[0].words]]
    operators = []
    for operator, command in zip(script.operators, script.commands[1:], strict=True):
        if operator is Operator.PIPE:
            pipelines[-1].append(command.words)
        else:
            operators.append(operator.value)
            pipelines.append([command.words])
    return Commands(tuple(map(tuple, pipelines)), tuple(operators))
