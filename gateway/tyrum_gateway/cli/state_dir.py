"""Where a gateway keeps its state when nothing says where."""

import os
import shlex
from pathlib import Path

from tyrum_gateway.cli.failure import ExitCode, Failure
from tyrum_gateway.cli.given_values import variable

VARIABLE = "TYRUM_STATE_DIR"
_OF_ROOT = Path("/var/lib/tyrum")
_BELOW_HOME = Path(".local/state/tyrum")


def chosen_state_dir(given: Path | None) -> Path:
    """Return the state directory of a command, absolute: the one given or of its variable, else the default.

    Raises:
        Failure: The variable's path begins with `~`, or there is none and this user has no home directory.
    """
    if given is not None and os.environ.get(VARIABLE) == str(given):
        given = variable(VARIABLE)
    return (given or default_state_dir()).absolute()


def default_state_dir() -> Path:
    """Return the state directory of a gateway that was not told where to keep its state.

    Raises:
        Failure: This user has no home directory.
    """
    if (directory := _default()) is None:
        raise Failure(
            f"user {os.geteuid()} has no home directory to keep state in",
            hint=f"name a directory: --state-dir DIR or {VARIABLE}; or set HOME",
            code=ExitCode.USAGE,
        )
    return directory


def state_dir_option(directory: Path) -> str:
    """Return ` --state-dir DIR` unless a command finds the directory without it."""
    known = directory == _default() or os.environ.get(VARIABLE) == str(directory)
    return "" if known else f" --state-dir {shlex.quote(str(directory))}"


def _default() -> Path | None:
    if os.geteuid() == 0:
        return _OF_ROOT
    try:
        home = Path.home()
    except RuntimeError:  # neither HOME nor an entry in the database of users
        return None
    return home / _BELOW_HOME if home.is_absolute() and os.environ.get("HOME") != "" else None
