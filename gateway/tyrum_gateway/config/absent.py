"""What to do when the configuration file that was named does not exist."""

import os
import shlex
from pathlib import Path

from tyrum_gateway.config.load import quickstart_path


def hint_without(path: Path) -> str:
    """Say how to get a configuration file where none is; empty when something is there, or cannot be seen."""
    try:
        path.lstat()
    except FileNotFoundError:
        named = "; TYRUM_CONFIG names it" if os.environ.get("TYRUM_CONFIG") == str(path) else ""
        copy = f"cp {shlex.quote(str(quickstart_path()))} {shlex.quote(str(path))}"
        return f"begin with a copy of the quickstart, which is in force without a file: {copy}{named}"
    except (OSError, ValueError):
        pass
    return ""
