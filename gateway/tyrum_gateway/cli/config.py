"""`tyrum config`: check, explain and show the configuration file; no gateway has to run.

Invariant: what is printed never holds a secret, nor any value of a file that was refused.
"""

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.options import Output, sub_app
from tyrum_gateway.cli.output import Format, counted, emit, note, say
from tyrum_gateway.cli.progress import lasting
from tyrum_gateway.cli.version import installed
from tyrum_gateway.config import (
    ConfigProblems,
    Problem,
    certificate_warnings,
    check_file,
    check_files,
    config_file,
    load_settings,
)
from tyrum_gateway.config.absent import hint_without
from tyrum_gateway.config.concurrency import concurrency_warnings
from tyrum_gateway.config.idle_rules import idle_rules
from tyrum_gateway.config.load import place_of
from tyrum_gateway.config.schema import json_schema
from tyrum_gateway.config.show import Effective, effective

if TYPE_CHECKING:
    from tyrum_gateway.models.probe import Probed
    from tyrum_provider_host import ProviderStatus

config_app = sub_app("Validate and explain the configuration file.")

File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Configuration file. Default: TYRUM_CONFIG, else the quickstart."),
]


@config_app.command()
def validate(
    file: File = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Also start the providers: each is admitted and proves what its profiles require. Ask the "
            "server of each model for its list of models, which costs no tokens.",
        ),
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Check a file and print every problem by position.

    A problem is one line, `file:line:column: path: message`, and the exit code is then 3. Rules that seem to
    decide nothing, a certificate that clients refuse or that ends within 30 days, and a provider that runs
    fewer commands at once than turns may run are told as `warning:`, and change no exit code.
    """
    path = config_file(file)
    try:
        checked = check_file(path, environment=os.environ)
        check_files(checked)
        warnings = (*certificate_warnings(checked), *idle_rules(checked, _replaceable))
    except ConfigProblems as problems:
        raise _told(problems.problems, path, output) from None
    statuses, models, refused = _probe(path) if probe else ((), (), [])
    limits = {item.name: item.descriptor.max_concurrent_operations for item in statuses if item.descriptor}
    warnings = (*warnings, *concurrency_warnings(checked, limits))
    if refused:
        _tell(refused, output, statuses, warnings, models)
        raise Failure(_summary(refused), code=ExitCode.PROVIDER_UNAVAILABLE)
    if output is not Format.JSON:
        for warning in warnings:
            note(f"warning: {warning}")
    if output is Format.TEXT:
        say(f"{path}: valid")
        for status in statuses:
            say(f"{status.name}: {status.lifecycle}")
        for model in models:
            say(f"model {model.model}: {'' if model.result == 'ok' else 'warning: '}{model.detail}")
    else:
        _tell((), output, statuses if probe else None, warnings, models)


@config_app.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    emit(json_schema(), Format.JSON)


@config_app.command()
def show(file: File = None, output: Output = Format.TEXT) -> None:
    """Print every setting in force and whether the file or a default decided it; secrets are `***`."""
    path = config_file(file)
    try:
        checked = check_file(path, environment=os.environ)
    except ConfigProblems as problems:
        raise _told(problems.problems, path, output) from None
    settings = list(effective(checked.content))
    if output is Format.JSON:
        emit([setting.as_json() for setting in settings], output)
        return
    for setting in settings:
        if output is Format.JSONL:
            emit(setting.as_json(), output)
        else:
            say(_line(setting))


def _line(setting: Effective) -> str:
    fields = setting.as_json()
    value = fields["value"] if fields["value"] == "***" else json.dumps(fields["value"], ensure_ascii=False)
    return f"{fields['path']} = {value}  ({fields['origin']})"


def _told(problems: Sequence[Problem], path: Path, output: Format) -> Failure:
    """Print the problems and return the failure that ends the command."""
    _tell(problems, output)
    count = f"{counted(len(problems), 'problem')} in the configuration"
    return Failure(count, hint=hint_without(path), code=ExitCode.CONFIG_INVALID)


def _tell(
    problems: Sequence[Problem],
    output: Format,
    statuses: "Sequence[ProviderStatus] | None" = None,
    warnings: Sequence[Problem] = (),
    models: "Sequence[Probed]" = (),
) -> None:
    match output:
        case Format.TEXT:
            for problem in problems:
                say(str(problem))
        case Format.JSONL:
            for problem in problems:
                emit(problem.as_json(), output)
        case Format.JSON:
            told: dict[str, object] = {
                "valid": not problems,
                "problems": [problem.as_json() for problem in problems],
                "warnings": [warning.as_json() for warning in warnings],
            }
            if statuses is not None:
                told["providers"] = [_status_json(status) for status in statuses]
                told["models"] = [
                    {"name": model.model, "result": model.result, "detail": model.detail} for model in models
                ]
            emit(told, output)


def _replaceable(program: str) -> str:
    from tyrum_gateway.cli import rehearsal  # noqa: PLC0415 - loads the parser of shell text

    return rehearsal.replaceable(program)


def _probe(path: Path) -> "tuple[Sequence[ProviderStatus], Sequence[Probed], Sequence[Problem]]":
    from tyrum_gateway.bootstrap.model_probe import probe_models  # noqa: PLC0415 - the same
    from tyrum_gateway.config.probe import probe, refusals, unusable  # noqa: PLC0415 - loads gRPC
    from tyrum_provider_host import HostSetupError  # noqa: PLC0415 - the same

    # What the host would log is what the command prints.
    logging.getLogger("tyrum_provider_host").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="tyrum-probe-") as directory:
        settings = load_settings(path, environment=os.environ, state_dir=Path(directory))
        try:
            with lasting("starting the providers and asking them"):
                statuses = asyncio.run(probe(settings))
                models = asyncio.run(probe_models(settings, installed()))
        except HostSetupError as error:
            raise Failure(str(error), code=ExitCode.PROVIDER_UNAVAILABLE) from None
    unheard = [
        Problem(str(path), place_of(path, *keys), keys, "no_answer", model.detail)
        for model in models
        if model.result == "fail"
        for keys in [("models", model.model)]
    ]
    return statuses, models, [*refusals(settings, statuses), *unusable(settings, statuses), *unheard]


def _summary(refused: "Sequence[Problem]") -> str:
    """Name the providers that were not admitted and the profiles that can run nothing."""
    providers = [str(problem.path[1]) for problem in refused if problem.code == "not_admitted"]
    profiles = [str(problem.path[2]) for problem in refused if problem.code == "not_proved"]
    told = [f"not admitted: {', '.join(providers)}"] if providers else []
    told += [f"required claims are not proved: {', '.join(profiles)}"] if profiles else []
    models = [str(problem.path[1]) for problem in refused if problem.code == "no_answer"]
    told += [f"models do not answer: {', '.join(models)}"] if models else []
    return "; ".join(told)


def _status_json(status: "ProviderStatus") -> dict[str, object]:
    return {
        "name": status.name,
        "kind": status.kind,
        "admitted": status.lifecycle.value == "admitted",
        "lifecycle": status.lifecycle.value,
        "reason": status.reason,
        "stages": [
            {"stage": result.stage.value, "passed": result.passed, "detail": result.detail}
            for result in status.stages
        ],
    }
