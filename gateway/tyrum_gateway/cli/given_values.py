"""What every value on a command line, and every path in an environment variable, must be.

Invariants, the same for all commands: an option that is given is not empty (an unset variable in a script is
no value), an environment variable that is empty counts as not set, and no path begins with `~`: only a shell
knows whose home it means, and it leaves many of them as they are. The configuration file keeps the same rule.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import typer
from typer._click import Context

from tyrum_gateway.cli.failure import ExitCode, Failure

_FILE = ("file", "argument")
"""What the commands about a configuration file call it, which the variable stands in for."""
HOME_UNKNOWN = "write the whole path, or ./~ for a name that begins so"


def check(parameters: Iterable[Any], given: Mapping[str, Any], context: Context) -> None:
    """Look at the words that were given, before they are converted.

    Raises:
        BadParameter: One of them breaks an invariant.
        Failure: The variable that stands in for a configuration file does.
    """
    for parameter in parameters:
        if parameter.name in {"config", "bundle"} or (parameter.name, parameter.param_type_name) == _FILE:
            variable("TYRUM_CONFIG")
        value = given.get(parameter.name or "")
        for word in value if isinstance(value, list | tuple) else (value,):
            if isinstance(word, str) and (problem := _problem(word, parameter)):
                raise typer.BadParameter(problem, ctx=context, param=parameter)


def _problem(word: str, parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    is_path = Path in (annotation, *get_args(annotation))
    if not word and (is_path or parameter.param_type_name == "option"):
        return "must not be empty"
    if is_path or parameter.name == "address":
        return tilde_problem(word.removeprefix("unix:"))
    return ""


def tilde_problem(path: str) -> str:
    """Say why a path that begins with `~` is not taken; empty when it does not."""
    return f"`~` is not resolved here: {HOME_UNKNOWN}" if path.startswith("~") else ""


def variable(name: str) -> Path | None:
    """Return the path in an environment variable; None when it is empty or not set.

    Raises:
        Failure: It begins with `~`.
    """
    named = os.environ.get(name)
    if named and (problem := tilde_problem(named)):
        raise Failure(f"{name}: {problem}", code=ExitCode.USAGE)
    return Path(named) if named else None
