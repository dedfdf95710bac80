"""Runs one of the bad providers: `python -m tyrum_conformance.broken NAME`; without a name, lists them."""

import importlib
import pkgutil
import sys

import tyrum_provider_kit  # noqa: F401 - before gRPC, or every provider here would be started twice
from tyrum_conformance import broken
from tyrum_conformance.broken._deviations import DEVIATIONS


def names() -> list[str]:
    """The providers that have a file of their own."""
    return sorted(
        item.name for item in pkgutil.iter_modules(broken.__path__) if not item.name.startswith("_")
    )


def main() -> int:
    """Run the provider named by the first argument."""
    if len(sys.argv) == 2 and sys.argv[1] in DEVIATIONS:
        return DEVIATIONS[sys.argv[1]]()
    if len(sys.argv) != 2 or sys.argv[1] not in names():
        usage = ["usage: python -m tyrum_conformance.broken NAME", *sorted((*names(), *DEVIATIONS))]
        sys.stderr.write("\n  ".join(usage) + "\n")
        return 64
    status: int = importlib.import_module(f"tyrum_conformance.broken.{sys.argv[1]}").main()
    return status


if __name__ == "__main__":
    sys.exit(main())
