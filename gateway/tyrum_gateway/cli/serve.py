"""`tyrum serve`: run the gateway until SIGTERM, Ctrl-C or the end of its terminal, then drain."""

import asyncio
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tyrum_gateway.cli.failure import ExitCode, Failure, first_of, from_error
from tyrum_gateway.cli.options import StateDir, sub_app
from tyrum_gateway.cli.output import counted, note, prose, say
from tyrum_gateway.cli.state_dir import chosen_state_dir, state_dir_option
from tyrum_gateway.cli.streams import Unwritten, settle
from tyrum_gateway.cli.version import installed
from tyrum_gateway.domain.errors import TyrumError

if TYPE_CHECKING:
    from tyrum_gateway.bootstrap.serve import Serving

app = sub_app("Start the gateway.")


@app.command()
def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Configuration. Default: TYRUM_CONFIG, else the quickstart."
        ),
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Start the gateway and serve until SIGTERM or Ctrl-C; turns in work then get time to rest.

    A second SIGTERM or Ctrl-C ends that time. Closing its terminal (SIGHUP) stops it too, unless it was
    started with `nohup`.

    Says on stdout where it serves, once it does; the log goes to stderr.
    """
    from tyrum_gateway.bootstrap import serve as serve_gateway  # noqa: PLC0415 - heavy
    from tyrum_gateway.config import (  # noqa: PLC0415
        ConfigProblems,
        config_file,
        load_settings,
        quickstart_path,
    )
    from tyrum_gateway.config.absent import hint_without  # noqa: PLC0415

    directory = chosen_state_dir(state_dir)
    path = config_file(config)
    try:
        settings = load_settings(path, environment=os.environ, state_dir=directory)
    except ConfigProblems as problems:
        if hint := hint_without(path):
            raise Failure(f"`{path}` does not exist", hint=hint, code=ExitCode.CONFIG_INVALID) from None
        for problem in problems.problems:
            note(str(problem))
        raise config_invalid(len(problems.problems), path) from None
    if os.geteuid() == 0:
        note("warning: running as root: what agents run without confinement can do everything here")

    def ready(serving: "Serving") -> None:
        greet(serving, directory, "quickstart" if path == quickstart_path() else str(path))

    try:
        asyncio.run(serve_gateway(settings, version=installed(), ready=ready))
    except (TyrumError, OSError) as error:
        raise _told(error, directory) from error
    except BaseExceptionGroup as group:
        raise _told(first_of(group), directory) from group


def config_invalid(count: int, path: Path) -> Failure:
    """Describe a configuration whose problems were just printed."""
    problems = f"{counted(count, 'problem')} in `{path}`"
    return Failure(problems, hint=f"tyrum config validate {path}", code=ExitCode.CONFIG_INVALID)


def _told(error: BaseException, directory: Path) -> BaseException:
    """Describe an error that ended the gateway; one that was not foreseen stays what it is."""
    if isinstance(error, TyrumError):
        return from_error(error)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        place = error.filename or directory
        return Failure(f"cannot serve: no room is left on the disk of `{place}`: make room")
    return Failure(f"cannot serve: {error}") if isinstance(error, OSError) else error


def greet(serving: "Serving", directory: Path, config: str) -> None:
    """Say on stdout where the gateway serves; that stdout does not take it ends no gateway."""
    try:
        _greet(serving, directory, config)
    except (Unwritten, BrokenPipeError):
        settle()
        note("warning: stdout does not take where the gateway serves; it serves all the same")


def _greet(serving: "Serving", directory: Path, config: str) -> None:
    say(f"tyrum {installed()} serves at {', '.join(serving.addresses)}")
    say(f"  state: {directory}")
    say(f"  configuration: {config}")
    for name, lifecycle in serving.providers.items():
        say(f"  provider {name}: {lifecycle}")
    for warning in serving.warnings:
        prose(f"  warning: {warning}", indentation=4)
    prose(f"Talk to it: tyrum chat{state_dir_option(directory)}")
