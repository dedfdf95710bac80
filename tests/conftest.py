"""Settings every test and every process it starts runs under."""

import os

import pytest

# Providers fork from single-threaded spawners only; grpc's own fork handlers would wait for threads that are
# gone.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file on one worker, where they share its fixtures, unless they are `apart`."""
    for item in items:
        if item.get_closest_marker("apart") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
