"""`tyrum config`: check, explain and show the configuration file; no gateway has to run."""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tyrum_gateway.config import ConfigProblems, check_file, quickstart_path
from tyrum_gateway.config.schema import json_schema
from tyrum_gateway.config.show import Effective, effective

config_app = typer.Typer(help="Check, explain and show the configuration file.", no_args_is_help=True)


class Output(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="Configuration file; by default the quickstart.")
]
OutputOption = Annotated[Output, typer.Option("--output", help="Form of the result.")]


@config_app.command()
def validate(file: ConfigFile = None, output: OutputOption = Output.TEXT) -> None:
    """Check a configuration file and print every problem by position; exit code 3 when there is one."""
    path = file or quickstart_path()
    try:
        check_file(path, environment=os.environ)
    except ConfigProblems as problems:
        _print_problems(problems, output)
        raise typer.Exit(problems.exit_code) from None
    if output is Output.JSON:
        _print_json({"valid": True, "problems": []})
    else:
        typer.echo(f"{path}: valid")


@config_app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    _print_json(json_schema())


@config_app.command()
def show(file: ConfigFile = None, output: OutputOption = Output.TEXT) -> None:
    """Print every setting in force and whether the file or a default decided it; secrets are `***`."""
    try:
        checked = check_file(file or quickstart_path(), environment=os.environ)
    except ConfigProblems as problems:
        _print_problems(problems, output)
        raise typer.Exit(problems.exit_code) from None
    settings = list(effective(checked.content))
    if output is Output.JSON:
        _print_json([setting.as_json() for setting in settings])
    else:
        for setting in settings:
            typer.echo(_line(setting))


def _line(setting: Effective) -> str:
    fields = setting.as_json()
    value = fields["value"] if fields["value"] == "***" else json.dumps(fields["value"], ensure_ascii=True)
    return f"{fields['path']} = {value}  ({fields['origin']})"


def _print_problems(problems: ConfigProblems, output: Output) -> None:
    found = problems.problems
    if output is Output.JSON:
        _print_json({"valid": False, "problems": [problem.as_json() for problem in found]})
        return
    for problem in found:
        typer.echo(str(problem))
    typer.echo(f"error: {len(found)} problem{'' if len(found) == 1 else 's'}", err=True)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=True))
