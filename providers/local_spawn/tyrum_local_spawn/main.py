"""Console script `tyrum-provider-local-spawn`; started by a Tyrum host, not by hand."""

import sys

from tyrum_local_spawn.provider import LocalSpawnProvider
from tyrum_provider_kit import run


def main() -> None:
    """Serve one provider instance until its end."""
    sys.exit(run(LocalSpawnProvider()))


if __name__ == "__main__":
    main()
