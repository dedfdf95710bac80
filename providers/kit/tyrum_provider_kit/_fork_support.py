"""Turns gRPC's fork support off, without which children of a provider crash now and then in fork handlers.

gRPC reads the variable when it is first imported, so this module is imported before everything else of the
kit. A program that imported gRPC even earlier is started once more with the variable set.
"""

import os
import sys

VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"
OFF = "0"

_too_late = "grpc" in sys.modules and os.environ.get(VARIABLE) != OFF
os.environ[VARIABLE] = OFF


def restart_if_too_late() -> None:
    """Replace the process by a fresh one when gRPC was imported with fork support; else do nothing.

    Standard input has not been read yet, and pid, descriptors and arguments stay the same.
    """
    if _too_late:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell is the point
