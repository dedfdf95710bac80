"""Settings every test and every process it starts runs under."""

import os
import signal
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Providers fork from single-threaded spawners only; grpc's own fork handlers would wait for threads that are
# gone.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Tests press Ctrl-C; whoever started them in the background has turned it off for all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)

APART = ("tests/sabotage/test_sabotage.py",)
"""Files whose tests share nothing, so that any worker may run any of them."""


class _FileByFile(LoadScopeScheduling):  # type: ignore[misc] # published without type information
    """Keeps the tests of a file on one worker, where they share its fixtures, unless it is in `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in APART else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Distribute by file; the groups that xdist knows are written into names that pytest does not use."""
    return _FileByFile(config, log)
